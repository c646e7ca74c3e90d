"""Run the user's transform on probe images and write down what it did: the child side of `trace_transform`.

Run as a plain file: `python trace_probe.py REQUEST.json`. Knows only Pillow and numpy, and `trace_journal`, which notes what is
done to the images.

Request:  {"recipe": {root, directory, script, argv, source, expression, takes, convert?}, "probes": [paths], "out": "folder"}
Answer:   out/trace.json  {"ok": true, "probes": [{"path", "ok", "error", "ops", "followed", "mode", "random"}]}
                          or {"ok": false, "error", "where"};  out/trace.npz  "pixels<i>" uint8, "output<i>" float
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import sys
import traceback
import types
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

if __package__:
    from .trace_journal import Journal, note
else:  # run as a plain file, beside which the other lies
    from trace_journal import Journal, note  # type: ignore[import-not-found,no-redef]

NOT_REACHED = "it did not come to the model's call with this image"
# What torchrun and the like tell the only process of a run.
LAUNCHER = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "SLURM_PROCID": "0"}


def evaluate(recipe: dict[str, Any]) -> Any:
    """Run the recipe's part of the user's script as if the script had been started there, then evaluate its expression."""
    directory = Path(recipe["root"]) / recipe["directory"]
    script = directory / recipe["script"]
    if not script.is_file():
        script = Path(recipe["root"]) / recipe["script"]
    os.chdir(directory)
    sys.path[0] = str(script.parent)
    sys.argv = [recipe["script"], *recipe["argv"]]
    module = types.ModuleType("__headrace__")
    module.__file__ = str(script)
    sys.modules[module.__name__] = module  # dataclasses look their module up by name
    code = compile(recipe["source"], str(script), "exec", dont_inherit=True)
    offline = False
    while True:
        try:
            exec(code, module.__dict__)  # noqa: S102 - its purpose
            return eval(recipe["expression"], module.__dict__)  # noqa: S307
        except KeyError as error:  # it expects to be started by a launcher
            asked = error.args[0] if error.args else None
            if asked not in LAUNCHER or asked in os.environ:
                raise
            os.environ[asked] = LAUNCHER[asked]
        except OSError as error:  # a model that the transform is configured from wants its weights, for a cache that is closed
            if offline or not (isinstance(error, urllib.error.URLError) or error.errno == errno.EROFS):
                raise
            do_without_downloads()
            offline = True


def do_without_downloads() -> None:
    """Let models keep their fresh weights where stored ones would be downloaded: what a transform does depends on no weight."""
    torch = sys.modules["torch"]  # which asked for them

    def nothing(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}

    zoo = sys.modules.get("torch.utils.model_zoo")
    plain = {torch.hub.load_state_dict_from_url, getattr(zoo, "load_url", None)} - {None}
    for module in list(sys.modules.values()):
        for name in ("load_state_dict_from_url", "load_url"):
            if getattr(module, "__dict__", {}).get(name) in plain:
                setattr(module, name, nothing)
    load = torch.nn.Module.load_state_dict

    def load_state_dict(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return load(module, state, *args, **kwargs) if state else None

    torch.nn.Module.load_state_dict = load_state_dict


class NetworkError(BaseException):
    """A transform asks a network, which no preprocessing states. No `except Exception` of the user's catches this."""


def refuse_networks(module: Any, _: Any) -> None:
    """Raise NetworkError for a module with weights."""
    if next(module.parameters(), None) is not None:
        raise NetworkError(f"asks a network, {type(module).__name__}, which no preprocessing can state")


def observe(
    transform: Callable[[Any], Any], path: str, recipe: dict[str, Any], journal: Journal
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    outputs = []
    for attempt in range(2):
        random.seed(attempt)
        np.random.seed(attempt)
        journal.read = None
        given: Any = path
        if recipe["takes"] == "image":
            given = Image.open(path)
            given.load()
            if recipe["convert"]:  # what the script does before it calls the transform
                given = given.convert(recipe["convert"])
        with journal.follow_torch(sys.modules["torch"]) if "torch.overrides" in sys.modules else contextlib.nullcontext():
            outputs.append(np.asarray(transform(given)))
    first, second = outputs
    if first.dtype.kind not in "fiub":
        return {"ok": False, "error": f"it returns {type(outputs[0]).__name__} of {first.dtype}, not an array of numbers"}, {}
    same = first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=True))
    found, pixels = note(journal.read)
    arrays = {"output": first.astype(np.float32)} | ({"pixels": pixels} if pixels is not None else {})
    return {**found, "random": not same}, arrays


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = Path(request["out"])
    journal = Journal()
    journal.install()
    answer: dict[str, Any] = {"ok": True, "probes": []}
    arrays: dict[str, np.ndarray] = {}
    try:
        transform = evaluate(request["recipe"])
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything, SystemExit too
        answer = {"ok": False, "error": f"{type(error).__name__}: {error}", "where": last_line(error)}
    else:
        if "cv2" in sys.modules:
            journal.follow_opencv(sys.modules["cv2"])
        if "torch" in sys.modules:
            sys.modules["torch"].nn.modules.module.register_module_forward_pre_hook(refuse_networks)
        for index, path in enumerate(request["probes"]):
            try:
                found, made = observe(transform, path, request["recipe"], journal)
            except NetworkError as error:  # nor would it be another for the next image
                answer = {"ok": False, "made": True, "error": str(error), "where": request["recipe"].get("source_at", "")}
                break
            except BaseException as error:  # noqa: BLE001 - likewise
                found, made = {"ok": False, "error": f"{type(error).__name__}: {error}"}, {}
            answer["probes"].append({"path": path, **found})
            arrays |= {f"{name}{index}": array for name, array in made.items()}
    np.savez(out / "trace.npz", **arrays)  # type: ignore[arg-type]
    (out / "trace.json").write_text(json.dumps(answer), encoding="utf-8")


def last_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


if __name__ == "__main__":
    main()
