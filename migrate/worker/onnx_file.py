"""An ONNX file becomes folders of a model repository: its graph as it is, batched where it can be, planned where asked."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...errors import ArtifactError, BackendError
from ...runtime.artifact.agreement import Array
from ...runtime.artifact.artifact import load_artifact
from ...runtime.artifact.manifest import ONNX_FILE
from ...runtime.artifact.package import check_fit, write_package
from ...runtime.artifact.parity import ParityRecord, largest_changes
from ...runtime.base.config import GraphConfig
from ...runtime.base.session import Session, Target
from ...runtime.base.task import GivenLabels, Task
from ...runtime.tuning.autotuner import Progress
from ...runtime.tuning.random_rows import random_rows
from ...runtime.tuning.retune import PortableSource, retune
from ...scratch import ScratchFolder
from ...specs import Preprocessing, Signature, TensorSpec
from ..proving.worker_protocol import PackageOnnx
from .packaging import Packaged

_OURS = "headrace"
"""`headrace export` writes its version under this key, and the rest under plain ones; who else writes it, under the next."""
PREPROCESSING, LABELS = f"{_OURS}.preprocessing", f"{_OURS}.labels"
_BATCHES = (1, 2, 5)
_OFF = 1e-4  # of the largest value: rows one by one and together
_MOST_ROWS = 16
_ALONE = ParityRecord(status="not-run", why="the graph runs one row at a time, as it came")


def package_onnx(request: PackageOnnx, tell: Progress) -> Packaged:
    """Package the file. A batch dimension that is fixed is made free where the graph then computes the same.

    Raises ArtifactError for a graph that takes other than images, or is broken; BackendError where nothing here runs it.
    """
    tell(0.0, "reading the graph")
    config = GraphConfig(
        precision=request.precision, device=request.device, task=request.task,  # type: ignore[arg-type]
        max_tuning_seconds=request.max_tuning_seconds, budget=request.budget,
    )  # fmt: skip
    with ScratchFolder() as staging:
        files, source = staging / "files", Path(request.path)
        files.mkdir()
        model = _read(source)
        signature = _signature(model, request.input)
        preprocessing, labels, told = _stated(model)
        if preprocessing is not None:
            check_fit(preprocessing, signature)
        own = _fixed_batch(model)
        tell(0.2, "running the graph")
        task = _task(told, signature) if told is not None and not config.task else Task.of(signature, config.task)
        if own:
            _free_batch(model)
        _save(model, files)
        parity, why = _batched(
            PortableSource(signature, files, task), _as_it_came(source, signature, task) if own else None, own or 1
        )
        if why is not None:
            if own not in (None, 1):
                raise ArtifactError(f"the graph takes batches of {own} alone, and not otherwise: {why}")
            rows = 1
            _save(_read(source), files)
        else:
            rows = _MOST_ROWS
        tell(0.4, "writing the model")
        path = write_package(
            Path(request.out), name=request.name, files_from=files, signature=signature, preprocessing=preprocessing,
            labels=labels, task=task, parity=parity, plans=[], max_batch_size=rows, provenance=dict(request.provenance),
        )  # fmt: skip
    if not request.planned:
        return Packaged(path=path, parity=parity, plan=None, task=task, duels=())
    images = None if request.image_folder is None else Path(request.image_folder)
    buckets = tuple(bucket for bucket in config.planned("cpu") if bucket <= rows)

    def tuning(part: float, text: str) -> None:
        tell(0.4 + 0.6 * part, text)

    _, plan = retune(path, replace(config, buckets=buckets), images=images, progress=tuning)
    return Packaged(path=path, parity=parity, plan=plan, task=load_artifact(path).task, duels=())


def _read(path: Path) -> Any:
    """The graph with its weights, which may lie in files beside it. Raises ArtifactError."""
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(str(path))
    except Exception as error:  # protobuf, the checker and external data each raise their own
        raise ArtifactError(f"{path.name} is no ONNX graph that can be read: {_first_line(error)}") from error
    return model


def _save(model: Any, folder: Path) -> None:
    (folder / ONNX_FILE).unlink(missing_ok=True)
    kept = onnx.ModelProto()
    kept.CopyFrom(model)
    del kept.metadata_props[:]
    onnx.save_model(kept, str(folder / ONNX_FILE))


def _as_it_came(path: Path, signature: Signature, task: Task) -> PortableSource:
    """The graph as it came, to compare with."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    _save(_read(path), folder)
    return PortableSource(signature, folder, task)


def _signature(model: Any, size: tuple[int, int, int] | None) -> Signature:
    weights = {value.name for value in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    specs = [_spec(value, size if index == 0 else None) for index, value in enumerate(inputs)]
    try:
        return Signature(inputs=tuple(specs), outputs=tuple(_spec(value, None) for value in model.graph.output))
    except ValueError as error:
        raise ArtifactError(str(error)) from error


def _spec(value: Any, size: tuple[int, int, int] | None) -> TensorSpec:
    kind = value.type.tensor_type
    if not kind.elem_type or not kind.HasField("shape") or not kind.shape.dim:
        raise ArtifactError(f"{value.name!r} is no tensor with a first dimension for the batch")
    shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim[1:]]
    if size is not None and len(shape) == 3:
        shape = [own or wanted for own, wanted in zip(shape, size, strict=True)]
    if not all(shape):
        raise ArtifactError(
            f"the graph leaves the shape of {value.name!r} open, {shape} after the batch; say --input-size C,H,W"
        )
    try:
        name = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
        return TensorSpec(name=value.name, dtype=name, shape=("batch", *(int(side or 0) for side in shape)))
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{value.name!r} cannot be served: {error}") from error


def _fixed_batch(model: Any) -> int | None:
    """The one batch size that the graph's inputs state; None where they leave it open."""
    weights = {value.name for value in model.graph.initializer}
    first = [value.type.tensor_type.shape.dim[0] for value in model.graph.input if value.name not in weights]
    return next((dim.dim_value for dim in first if dim.HasField("dim_value")), None)


def _free_batch(model: Any) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]


def _stated(model: Any) -> tuple[Preprocessing | None, GivenLabels, Any]:
    """What the metadata says of preprocessing, labels and task, as JSON. Raises ArtifactError where it is not in its form."""
    said = {item.key: item.value for item in model.metadata_props}

    def told(key: str) -> Any:
        text = said.get(f"{_OURS}.{key}", said.get(key) if _OURS in said else None)
        return None if text is None else json.loads(text)

    try:
        steps, labels, task = told("preprocessing"), told("labels"), told("task")
        made = None if steps is None else Preprocessing.from_json(steps)
        if isinstance(labels, dict):
            labels = {str(output): [str(name) for name in names] for output, names in labels.items()}
        elif labels is not None:
            labels = [str(name) for name in labels]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"the graph's metadata {PREPROCESSING} or {LABELS} cannot be read: {error}") from error
    return made, labels, task


def _task(told: Any, signature: Signature) -> Task:
    try:
        return Task.from_json(told, signature)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError(f"the task in the graph's metadata cannot be read: {error}") from error


def _batched(source: PortableSource, own: PortableSource | None, repeated: int) -> tuple[ParityRecord, str | None]:
    """Whether rows come out together as they do alone or, `repeated`, from the graph `own` as it came; else why not."""
    rows = random_rows(source.signature, max(_BATCHES))
    target = Target(device="cpu")
    worst = 0.0
    try:
        with contextlib.ExitStack() as opened:
            session = opened.enter_context(contextlib.closing(source.open(target)))
            alone_session = session if own is None else opened.enter_context(contextlib.closing(own.open(target)))
            alone = _joined([_alone(alone_session, rows, row, repeated) for row in range(max(_BATCHES))])
            for batch in _BATCHES:
                given = session.run([value[:batch] for value in rows])
                wanted = [value[:batch] for value in alone]
                if [value.shape for value in given] != [value.shape for value in wanted]:
                    return ParityRecord(
                        status="not-run", why="it is not batched"
                    ), f"with {batch} rows it gives {given[0].shape}"
                changes = largest_changes(wanted, [given])
                for change, value in zip(changes, wanted, strict=True):
                    if value.dtype.kind == "f" and not change <= _OFF * max(1.0, float(np.abs(value).max(initial=0.0))):
                        return ParityRecord(
                            status="not-run", why="it is not batched"
                        ), f"rows change each other by {change:.1e}"
                worst = max(worst, *changes)
    except BackendError as error:
        return _ALONE, _first_line(error)
    finally:
        if own is not None:
            shutil.rmtree(own.directory, ignore_errors=True)
    return ParityRecord(status="passed", max_abs=worst, tolerance=_OFF, rows=len(rows[0]), batches=_BATCHES), None


def _alone(session: Session, rows: list[Array], row: int, repeated: int) -> list[Array]:
    given = session.run([np.repeat(value[row : row + 1], repeated, axis=0) for value in rows])
    return [value[:1] for value in given]


def _joined(parts: list[list[Array]]) -> list[Array]:
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
