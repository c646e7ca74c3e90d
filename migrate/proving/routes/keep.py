"""Which routes of an application a package can answer in its place, each proved: three runs in the sandbox.

The package says which images tell its classes apart; the application, run as it stands, is asked about those; and what it said
is compared with a template that is filled from the package's own scores. `headrace.json` then holds the routes that are proved.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import SandboxError
from ...reading.recipe import Recipe
from ..sandbox import Sandbox, read_left, read_left_json

IMAGES = 24
"""That the application is asked about; half of them are for the proof."""
_WORKER = "headrace.migrate.worker.routes"
_MANIFEST = "headrace.json"
_NAME = re.compile(r"photo-[0-9]{1,3}\.jpg")


@dataclass(frozen=True, kw_only=True)
class Route:
    """A route of the application, at `where` in its sources; `why` it cannot be kept, else how an image is sent to it, and on
    how many images its answers were proved."""

    path: str
    where: str
    why: str = ""
    image: str = ""
    proved: int = 0


def keep_routes(recipe: Recipe, package: Path, sandbox: Sandbox) -> list[Route]:
    """The routes of the application that the recipe's script makes; those that are proved stand in the package afterwards.

    Raises SandboxError where nothing can be said of any.
    """
    chosen, folder = _run("choose", sandbox, {"package": str(package), "count": IMAGES}, "chosen.json")
    if isinstance(why := chosen.get("why"), str):
        raise SandboxError(why)
    names = chosen.get("images")
    if not isinstance(names, list) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise SandboxError("the images that were made are not as they are written")
    probes = [str(folder / name) for name in names]
    seen, asked = _run("observe", sandbox, {"recipe": recipe.to_json(), "probes": probes}, "answers.json")
    if isinstance(why := seen.get("why"), str):
        raise SandboxError(f"it could not be asked about images, {why}")
    if not seen.get("routes"):
        raise SandboxError("no route of Flask's or FastAPI's takes POST")
    request = {"package": str(package), "probes": probes, "answers": str(asked / "answers.json")}
    proved, written = _run("prove", sandbox, request, "proved.json")
    routes = [_route(item, kept) for kept in (True, False) for item in _list(proved.get("kept" if kept else "refused"))]
    if os.path.lexists(written / _MANIFEST) and any(not route.why for route in routes):
        _take(read_left(written / _MANIFEST), package / "1" / _MANIFEST)
    return routes


def _run(program: str, sandbox: Sandbox, request: Mapping[str, Any], left: str) -> tuple[dict[str, Any], Path]:
    """What one of the programs left as JSON, and its folder. Raises SandboxError."""
    writable = sandbox.writable_folder()
    asked = sandbox.readable_folder() / "request.json"
    asked.write_text(json.dumps({**request, "out": str(writable)}), encoding="utf-8")
    done = sandbox.run(["-P", "-m", f"{_WORKER}.{program}", str(asked)], writable)
    if not os.path.lexists(writable / left):
        raise SandboxError(f"its routes could not be tried: {done.why or 'they left no result'}", output=done.stderr)
    answer = read_left_json(writable / left)
    if not isinstance(answer, dict):
        raise SandboxError(f"{left} is not what is written there")
    return answer, writable


def _take(manifest: bytes, place: Path) -> None:
    """Put the manifest with the routes in the place of that without: whole, or not at all."""
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    aside.write_bytes(manifest)
    aside.replace(place)


def _route(item: Any, kept: bool) -> Route:
    if not isinstance(item, dict) or not all(isinstance(item.get(name), str) for name in ("path", "where")):
        raise SandboxError("the routes that were tried are not as they are written")
    if not kept:
        return Route(path=item["path"], where=item["where"], why=str(item.get("why") or "nobody said why"))
    return Route(path=item["path"], where=item["where"], image=str(item.get("image")), proved=int(item.get("proved") or 0))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
