"""`python -m headrace.migrate.worker.worker REQUEST.json RESPONSE.json`: a user's model is built and packaged.

Tasks are "inspect", "answers", "package" and "variants". Every outcome is a response, failures too: {"ok": false, "error",
"where", "traceback", "stage", "obstacles"}. Lines `PROGRESS <0..1> <text>` go to standard output among whatever the user's code
prints.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import ArtifactError, BackendError, CaptureError, HeadraceError, ParityError, SandboxError
from ...runtime.artifact.manifest import plain

_TRACEBACK = 16_000


def main(arguments: list[str]) -> int:
    """Answer one request; the exit status is 0 when a response was written."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m headrace.migrate.worker.worker REQUEST.json RESPONSE.json\n")
        return 2
    request_path, response_path = (Path(argument).resolve() for argument in arguments)
    response = answer(request_path, _reporter())
    aside = response_path.with_name(f".{response_path.name}.{os.getpid()}")
    aside.write_text(json.dumps(plain(response), allow_nan=False), encoding="utf-8")
    aside.replace(response_path)
    return 0


def answer(request_path: Path, tell: Callable[[float, str], None]) -> dict[str, Any]:
    """The response to a request file; never raises for what the user's code, or the request, does."""
    stage = ["build"]
    root = None
    try:
        request = json.loads(request_path.read_text(encoding="utf-8"))
        root = request["recipe"]["root"]
        task = {"inspect": _inspect, "answers": _answers, "package": _package, "variants": _variants}[request["task"]]
        return {"ok": True, **task(request, tell, stage)}
    except KeyboardInterrupt:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything, and every outcome is a response
        return _failure(error, root, stage[0])


def _inspect(request: Mapping[str, Any], tell: Callable[[float, str], None], stage: list[str]) -> dict[str, Any]:
    from .inspection import inspect_model
    from .recipe import build_model
    from .stored_weights import stored_weights_read

    tell(0.0, "building the model")
    notes: list[str] = []
    with stored_weights_read() as weights:
        model = build_model(request["recipe"], notes)
    stage[0] = "inspect"
    tell(0.5, "running it")
    root = Path(request["recipe"]["root"])
    found = inspect_model(model, root, size=request.get("input"), preprocessing=request.get("preprocessing"))
    tell(1.0, "inspected")
    return {**found, "notes": notes, "weights_from": [str(path) for path in weights]}


def _answers(request: Mapping[str, Any], tell: Callable[[float, str], None], stage: list[str]) -> dict[str, Any]:
    from .noise_outputs import answers
    from .recipe import build_model

    tell(0.0, "building the model")
    folder = Path(request["out"]).resolve()
    model = build_model(request["recipe"])
    stage[0] = "run"
    tell(0.5, "running it")
    return answers(model, request["input"], folder, weights=request.get("weights"))


def _package(request: Mapping[str, Any], tell: Callable[[float, str], None], stage: list[str]) -> dict[str, Any]:
    from .packaging import package_model
    from .recipe import build_model

    stage[0] = "package"
    order = _order(request)
    stage[0] = "build"
    tell(0.0, "building the model")
    model = build_model(request["recipe"])
    stage[0] = "capture"
    made = package_model(model, order, lambda part, text: tell(0.1 + 0.9 * part, text))
    return {"artifact": str(made.path), "captured": True, "parity": made.parity.to_json(), "plan": made.plan.to_json()}


def _variants(request: Mapping[str, Any], tell: Callable[[float, str], None], stage: list[str]) -> dict[str, Any]:
    from ...runtime.tuning.variants import write_variants
    from .recipe import build_model

    artifact, out = (Path(request[name]).resolve() for name in ("artifact", "out"))
    images = [Path(path).resolve() for path in request["images"]]
    tell(0.0, "building the model")
    model = build_model(request["recipe"])
    stage[0] = "package"
    made = write_variants(model, artifact, out, images=images, tell=lambda part, text: tell(0.1 + 0.9 * part, text))
    return {"variants": [variant.to_json() for variant in made]}


def _order(request: Mapping[str, Any]) -> Any:
    from ...runtime.artifact.artifact import check_target
    from ...runtime.base.config import GraphConfig
    from ...specs import Preprocessing
    from .packaging import Order

    arrays = _arrays(request.get("images"))
    targets = arrays.get("labels")
    one_class_each = targets is not None and targets.ndim == 1 and targets.dtype.kind in "iu"  # else no accuracy to compare
    preprocessing = request.get("preprocessing")
    out = Path(request["out"])
    check_target(out, request["name"])
    return Order(
        name=request["name"],
        out=out if out.is_absolute() else Path.cwd() / out,
        row=tuple(request["input"]),
        config=GraphConfig(
            precision=request.get("precision", "auto"),
            buckets=tuple(request["buckets"]) if request.get("buckets") else None,
            max_tuning_seconds=request.get("max_tuning_seconds"),
            backend=request.get("backend"),
            threads=request.get("threads"),
            device=request.get("device", "auto"),
        ),
        images=arrays.get("images"),
        targets=targets if one_class_each else None,
        outputs=arrays.get("outputs"),
        labels=request.get("labels"),
        preprocessing=None if preprocessing is None else Preprocessing.from_json(preprocessing),
        randomise=bool(request.get("randomise", False)),
        provenance=request.get("provenance") or {},
    )


def _arrays(path: str | None) -> dict[str, Any]:
    """The arrays of an .npz file. Pickled objects in it are refused by numpy."""
    if path is None:
        return {}
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    counts = {name: len(array) for name, array in arrays.items() if array.ndim}
    if "images" not in counts or len(set(counts.values())) != 1:
        raise ArtifactError(f"{path} must hold 'images', and as many rows in every other array; it holds {counts}")
    return arrays


def _failure(error: BaseException, root: str | None, stage: str) -> dict[str, Any]:
    kinds = {CaptureError: "capture", ParityError: "parity", BackendError: "package", ArtifactError: "package"}
    stage = next((name for kind, name in kinds.items() if isinstance(error, kind)), stage)
    cause = error.__cause__ if isinstance(error, SandboxError) and error.__cause__ is not None else error
    text = str(error).strip() or type(error).__name__
    obstacles = error.obstacles if isinstance(error, CaptureError) else ()
    obstacles = tuple(replace(item, path=_relative(item.path, root)) for item in obstacles)
    if obstacles:
        text = str(CaptureError(text.splitlines()[0], obstacles))
    return {
        "ok": False,
        "stage": stage,
        "error": text if isinstance(error, HeadraceError) else f"{type(error).__name__}: {text}",
        "where": _where(cause, root),
        "traceback": "".join(traceback.format_exception(cause))[-_TRACEBACK:],
        "obstacles": [dict(vars(obstacle)) for obstacle in obstacles],
    }


def _where(error: BaseException, root: str | None) -> str | None:
    if root is None:
        return None
    from .recipe import locate

    return locate(error, root)


def _relative(path: str, root: str | None) -> str:
    inside = root is not None and path and Path(path).resolve().is_relative_to(Path(root).resolve())
    return Path(path).resolve().relative_to(Path(root or "/").resolve()).as_posix() if inside else path


def _reporter() -> Callable[[float, str], None]:
    """Writes progress to the standard output this process was started with, whatever user code does to `sys.stdout`."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")

    def tell(fraction: float, text: str) -> None:
        output.write(f"PROGRESS {min(1.0, max(0.0, fraction)):.3f} {' '.join(text.split())}\n")
        output.flush()

    return tell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
