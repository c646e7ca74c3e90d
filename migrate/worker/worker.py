"""`python -m headrace.migrate.worker.worker REQUEST.json RESPONSE.json`: a user's model is built and packaged.

Both files hold one message of `proving.worker_protocol`. Every outcome is a response, failures too. Lines
`PROGRESS <0..1> <text>` go to standard output among whatever the user's code prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ArtifactError, BackendError, CaptureError, HeadraceError, ParityError, SandboxError
from ...runtime.artifact.manifest import plain
from ..named.told_later import read_told
from ..proving.worker_protocol import (
    ComputeOutputs,
    Evaluate,
    Evaluated,
    Failed,
    Inspect,
    Inspected,
    ModelPackaged,
    OutputsComputed,
    Package,
    PackageOnnx,
    ParityResult,
    Rehearse,
    Rehearsed,
    Request,
    Response,
    decode,
    encode,
)

_TOLD_SECONDS = 600.0  # for what is found out beside the worker, which is bounded itself

if TYPE_CHECKING:
    import numpy as np

    from .packaging import Order, Packaged

Report = Callable[[float, str], None]


def main(arguments: list[str]) -> int:
    """Answer one request; the exit status is 0 when a response was written."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m headrace.migrate.worker.worker REQUEST.json RESPONSE.json\n")
        return 2
    request_path, response_path = (Path(argument).resolve() for argument in arguments)
    response = encode(answer(request_path, _reporter()))
    aside = response_path.with_name(f".{response_path.name}.{os.getpid()}")
    aside.write_text(response, encoding="utf-8")
    aside.replace(response_path)
    return 0


def answer(request_path: Path, report: Report) -> Response:
    """The response to a request file; never raises for what the user's code, or the request, does."""
    stage = ["build"]
    root = None
    try:
        request = decode(request_path.read_text(encoding="utf-8"))
        if not isinstance(request, Request):
            raise ValueError(f"{type(request).__name__} is no request")
        root = request.recipe.root
        match request:
            case Inspect():
                return _inspect(request, report, stage)
            case Evaluate():
                return _evaluate(request, report)
            case Rehearse():
                return _rehearse(request, report, stage)
            case ComputeOutputs():
                return _compute_outputs(request, report, stage)
            case Package():
                return _package(request, report, stage)
            case PackageOnnx():
                return _package_onnx(request, report, stage)
    except KeyboardInterrupt:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything, and every outcome is a response
        return _failure(error, root, stage[0])


def _inspect(request: Inspect, report: Report, stage: list[str]) -> Inspected:
    from .build import build_model
    from .inspection import inspect_model
    from .stored_weights import stored_weights_read

    report(0.0, "building the model")
    notes: list[str] = []
    with stored_weights_read() as weights:
        model = build_model(request.recipe, notes)
    stage[0] = "inspect"
    report(0.5, "running it")
    found = inspect_model(model, Path(request.recipe.root), size=request.input)
    report(1.0, "inspected")
    return replace(found, notes=tuple(notes), weights_from=tuple(map(str, weights)))


def _evaluate(request: Evaluate, report: Report) -> Evaluated:
    from .recipe import evaluate

    report(0.0, f"evaluating {request.recipe.expression}")
    return Evaluated(value=plain(evaluate(request.recipe)))


def _rehearse(request: Rehearse, report: Report, stage: list[str]) -> Rehearsed:
    from .live.model import see_models

    stage[0] = "run"
    report(0.0, f"running {request.recipe.script}")
    return see_models(request.recipe, request.read, request.patience, quick=request.quick)


def _compute_outputs(request: ComputeOutputs, report: Report, stage: list[str]) -> OutputsComputed:
    from .build import build_model
    from .noise_outputs import compute_outputs

    report(0.0, "building the model")
    folder = Path(request.out).resolve()
    model = build_model(request.recipe)
    stage[0] = "run"
    report(0.5, "running it")
    compute_outputs(model, request.input, folder, weights=request.weights)
    return OutputsComputed()


def _package(request: Package, report: Report, stage: list[str]) -> ModelPackaged:
    from .build import build_model
    from .packaging import package_model

    stage[0] = "package"
    order = _order(request)
    stage[0] = "build"
    report(0.0, "building the model")
    model = build_model(request.recipe)
    stage[0] = "capture"
    made = package_model(model, order, lambda part, text: report(0.1 + 0.9 * part, text))
    return _packaged(made)


def _package_onnx(request: PackageOnnx, report: Report, stage: list[str]) -> ModelPackaged:
    from .onnx_file import package_onnx

    stage[0] = "package"
    return _packaged(package_onnx(request, report))


def _packaged(made: Packaged) -> ModelPackaged:
    parity = {**plain(made.parity.to_json()), "batches": tuple(made.parity.batches)}
    result = ParityResult(**{item.name: parity[item.name] for item in fields(ParityResult)})
    outputs = tuple(f"{head.output}: {head.described}" for head in made.task.heads)
    return ModelPackaged(artifact=str(made.path), parity=result, duels=made.duels, outputs=outputs, precision=made.precision)


def _order(request: Package) -> Order:
    from ...runtime.artifact.write_artifact import check_target
    from ...runtime.base.config import GraphConfig
    from .packaging import Order

    arrays = _arrays(request.images) if request.image_folder is None else _of_folder(request, Path(request.image_folder))
    targets = arrays.get("labels")
    check_target(Path(request.out), request.name)
    return Order(
        name=request.name,
        out=Path.cwd() / request.out,
        row=request.input,
        config=GraphConfig(
            precision=request.precision,  # type: ignore[arg-type]  # which GraphConfig checks
            budget=request.budget,
            buckets=request.buckets,
            max_tuning_seconds=request.max_tuning_seconds,
            backend=request.backend,
            threads=request.threads,
            device=request.device,  # type: ignore[arg-type]
            task=request.task,
        ),
        images=arrays.get("images"),
        made=request.made,
        targets=targets,  # which count where they are of the model's task
        outputs=arrays.get("outputs"),
        labels=request.labels,
        preprocessing=request.preprocessing,
        randomize=request.randomize,
        planned=request.planned,
        told_later=None if request.told_later is None else partial(read_told, Path(request.told_later), _TOLD_SECONDS),
        provenance=request.provenance,
    )


def _arrays(path: str | None) -> dict[str, np.ndarray]:
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


def _of_folder(request: Package, folder: Path) -> dict[str, np.ndarray]:
    """The images of a folder as the model takes them and, where its folders are named like the labels, their classes; or what
    lies in an .npz file."""
    if folder.is_file():
        return _arrays(str(folder))
    from ...runtime.images.image_folder import read_images
    from ...specs import Labels

    if request.preprocessing is None:
        raise ArtifactError(f"nothing says how an image becomes the model's input, so {folder} cannot be read for it")
    names = request.labels[0] if len(request.labels) == 1 else None
    images, labels = read_images(folder, request.preprocessing, None if names is None else Labels(names))
    return {"images": images} if labels is None else {"images": images, "labels": labels}


def _failure(error: BaseException, root: str | None, stage: str) -> Failed:
    kinds = {CaptureError: "capture", ParityError: "parity", BackendError: "package", ArtifactError: "package"}
    stage = next((name for kind, name in kinds.items() if isinstance(error, kind)), stage)
    cause = error.__cause__ if isinstance(error, SandboxError) and error.__cause__ is not None else error
    text = str(error).strip() or type(error).__name__
    obstacles = error.obstacles if isinstance(error, CaptureError) else ()
    obstacles = tuple(replace(item, path=_relative(item.path, root)) for item in obstacles)
    if obstacles:
        text = str(CaptureError(text.splitlines()[0], obstacles))
    return Failed(
        stage=stage,
        error=text if isinstance(error, HeadraceError) else f"{type(error).__name__}: {text}",
        where=_where(cause, root),
        obstacles=obstacles,
        random_weights=isinstance(error, SandboxError) and error.random_weights,
    )


def _where(error: BaseException, root: str | None) -> str | None:
    if root is None:
        return None
    from .recipe import locate

    return locate(error, root)


def _relative(path: str, root: str | None) -> str:
    inside = root is not None and path and Path(path).resolve().is_relative_to(Path(root).resolve())
    return Path(path).resolve().relative_to(Path(root or "/").resolve()).as_posix() if inside else path


def _reporter() -> Report:
    """Writes progress to the standard output this process was started with, whatever user code does to `sys.stdout`."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")

    def report(fraction: float, text: str) -> None:
        output.write(f"PROGRESS {min(1.0, max(0.0, fraction)):.3f} {' '.join(text.split())}\n")
        output.flush()

    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
