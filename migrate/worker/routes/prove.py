"""`python -m headrace.migrate.worker.routes.prove REQUEST.json`: templates of what an application said, proved, and written.

Half of the images show the form of an answer; on the other half the template, filled from what the package computes, must say
what the application said. What it said comes from the user's code, so nothing of it is taken for granted; none of that code
runs here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....errors import ArtifactError
from ....runtime.artifact.artifact import Artifact
from ....runtime.artifact.manifest import read_content, write_manifest
from ....runtime.artifact.routes.answer_template import Answered
from ....runtime.artifact.routes.kept_route import MOST_ROUTES, MOST_TABLES, ImageForm, KeptRoute, why_no_path
from .agree import Disagreement, check, shown
from .infer import NoTemplateError, infer, varied
from .package import PackagedModel

_FEWEST = 8
"""Images of each half, without which nothing is said."""


class NotKept(Exception):  # noqa: N818 - it is an outcome
    """Why a route cannot be kept."""


def main(arguments: list[str]) -> int:
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    out = Path(request["out"])
    model = PackagedModel(Path(request["package"]))
    probes = [Path(probe) for probe in request["probes"]]
    rows = model.scores([probe.read_bytes() for probe in probes])
    seen = json.loads(Path(request["answers"]).read_text(encoding="utf-8"))
    tables = [tuple(table) for table in seen["tables"] if len(table) == model.classes and tuple(table) != model.labels][
        :MOST_TABLES
    ]
    answered = [Answered(row, (model.labels, *tables), probe.name) for row, probe in zip(rows, probes, strict=True)]
    kept: list[KeptRoute] = []
    refused: list[dict[str, str]] = []
    for route in seen["routes"]:
        try:
            kept.append(_kept(route, answered, tables, model, [one.path for one in kept]))
        except NotKept as error:
            refused.append(
                {"path": str(route.get("path"))[:200], "where": str(route.get("where", ""))[:500], "why": str(error)[:1000]}
            )
    if kept:
        write_routes(model.artifact, kept, out)
    told = [{"path": one.path, "where": one.source, "image": str(one.image), "proved": one.proved} for one in kept]
    (out / "proved.json").write_text(json.dumps({"kept": told, "refused": refused}), encoding="utf-8")
    return 0


def write_routes(artifact: Artifact, routes: Sequence[KeptRoute], out: Path) -> None:
    """Write the package's manifest, with its routes, into a folder."""
    write_manifest(out, {**read_content(artifact.path), "routes": [route.to_json() for route in routes]})


def _kept(
    route: dict[str, Any],
    answered: Sequence[Answered],
    tables: Sequence[tuple[str, ...]],
    model: PackagedModel,
    taken: Sequence[str],
) -> KeptRoute:
    if route["why"]:
        raise NotKept(route["why"])
    if why := why_no_path(route["path"]):
        raise NotKept(why)
    if route["path"] in taken or len(taken) == MOST_ROUTES:
        raise NotKept("another route has its path" if route["path"] in taken else f"{MOST_ROUTES} routes are kept of one model")
    said = [_json(answer) for answer in route["answers"]]
    if len(said) != 1 + len(answered):
        raise NotKept(f"it answered {len(said)} of {1 + len(answered)} requests")
    if said[0] != said[1]:
        raise NotKept(
            f"{_differing(said[0], said[1], '')} differs from answer to answer for one and the same image, as times do"
        )
    said = said[1:]
    fit, proof = slice(0, None, 2), slice(1, None, 2)
    if min(len(answered[fit]), len(answered[proof])) < _FEWEST:
        raise NotKept(f"only {len(answered)} images could be made, too few to tell")
    if min(varied(answered[fit]), varied(answered[proof])) < 2:
        raise NotKept(
            "every image that could be made is of one class for the model, so that a label cannot be told from a constant"
        )
    try:
        template = infer(said[fit], answered[fit])
        for value, one in zip(said[proof], answered[proof], strict=True):
            check(template, value, one)
        form = ImageForm(kind=route["sent"]["kind"], name=route["sent"]["name"])
        made = KeptRoute(
            path=route["path"],
            image=form,
            template=template,
            tables=tuple(tables),
            proved=len(answered[proof]),
            source=route["where"],
        )
        # As it is read when it is served: what would be refused then is refused now.
        return KeptRoute.from_json(json.loads(json.dumps(made.to_json())), classes=model.classes, labeled=bool(model.labels))
    except NoTemplateError as error:
        raise NotKept(str(error)) from None
    except Disagreement as error:
        raise NotKept(f"on another image {error}: the answer has other forms than the one that was seen") from None
    except ValueError as error:
        raise NotKept(f"its answer has no form that a package can hold: {error}") from None


def _json(answer: dict[str, Any]) -> Any:
    if answer["status"] != 200:
        raise NotKept(f"it answers some images with status {answer['status']}")
    kind = answer["type"].partition(";")[0].strip().lower()
    if kind != "application/json":
        raise NotKept(f"it answers {kind or 'without a type'}, not JSON")
    try:
        return json.loads(answer["text"])
    except (ValueError, RecursionError):
        raise NotKept("its answer is no JSON document, or longer than a megabyte") from None


def _differing(one: Any, other: Any, place: str) -> str:
    """The first member in which two answers differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        name = next(name for name in one if one[name] != other[name])
        return _differing(one[name], other[name], f"{place}.{name}".lstrip("."))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        index = next(index for index in range(len(one)) if one[index] != other[index])
        return _differing(one[index], other[index], f"{place}[{index}]")
    return f"the member {place!r} ({shown(one)}, {shown(other)})" if place else f"the answer ({shown(one)}, {shown(other)})"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ArtifactError, KeyError, TypeError, ValueError, AttributeError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(3)
