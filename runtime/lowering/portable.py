"""The portable graph, model.onnx: dynamic batch, the signature's names, and nothing of the user's machine in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ..base.atomic import aside

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ...specs import Signature
    from ..base.calibration import Calibration
    from ..capture.capture import CapturedGraph

ONNX_FILE = "model.onnx"
_DATA_FILE = "model.onnx.data"
_PROTOBUF_LIMIT = 2**31
_ROOM = 2**24  # for the graph beside the weights


@dataclass(frozen=True)
class PortableGraph:
    """A graph of which only model.onnx is there: what an artifact holds for other machines."""

    signature: Signature
    calibration: Calibration | None = field(default=None, repr=False)


def write_onnx(captured: CapturedGraph | PortableGraph, directory: Path) -> list[str]:
    """Write model.onnx unless it is there, and return the names of its files: two when the weights exceed 2 GB.

    Raises BackendError when an operator has no translation.
    """
    there = [name for name in (ONNX_FILE, _DATA_FILE) if (directory / name).exists()]
    if ONNX_FILE in there:
        return there
    if isinstance(captured, PortableGraph):
        raise BackendError(f"{directory} holds no {ONNX_FILE}; compile the model itself again")
    import onnx
    import torch

    from ..base.silence import silence

    weights = sum(value.numel() * value.element_size() for value in captured.program.state_dict.values())
    large = weights + _ROOM > _PROTOBUF_LIMIT
    files = [ONNX_FILE, _DATA_FILE] if large else [ONNX_FILE]
    signature = captured.signature
    try:
        # With gradients on, a trainable attention mask makes the exporter choose another kernel than the capture did, whose
        # results lie in memory in another order, so that the graph's views do not fit them.
        with silence("torch", "onnxscript", "onnx_ir"), torch.no_grad():
            exported = torch.onnx.export(
                _with_plain_means(captured.program),
                (),
                input_names=[spec.name for spec in signature.inputs],
                output_names=[spec.name for spec in signature.outputs],
                dynamo=True,
                verbose=False,
            )
            assert exported is not None
            model = exported.model_proto
    except Exception as error:
        raise BackendError(f"the graph cannot be written as ONNX: {_innermost(error)}") from error
    _tidy(model)
    with aside(directory, ONNX_FILE) as (path,):
        onnx.save_model(model, str(path), **({"save_as_external_data": True, "location": _DATA_FILE} if large else {}))
    return files


def _with_plain_means(program: ExportedProgram) -> ExportedProgram:
    """The program with means for poolings to one pixel. torch decomposes those by the layout that the capture's example had:
    in channels last into strides, which ONNX has only as gathered indices, and OpenVINO 2026.4 reads those wrongly before a
    product in int8."""
    import torch

    from ..capture.rewrite import ProgramEditor

    editor = ProgramEditor(program)
    aten = torch.ops.aten
    for node in editor.graph.nodes:
        if node.target is aten.adaptive_avg_pool2d.default and set(node.args[1]) == {1}:
            node.target, node.args = aten.mean.dim, (node.args[0], [-2, -1], True)
    return editor.finish()


def _innermost(error: BaseException) -> str:
    """What the exporter met. It wraps errors in general advice; the one that says something is the first that was raised."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _tidy(model: Any) -> None:
    """Name the symbolic dimension "batch", and drop metadata: it holds source lines and paths of the user's machine."""
    graph = model.graph
    symbols = {graph.input[0].type.tensor_type.shape.dim[0].dim_param} - {""}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in symbols:
                size.dim_param = "batch"
        del value.metadata_props[:]
    for owner in (*graph.node, *graph.initializer):
        del owner.metadata_props[:]
        owner.doc_string = ""
    del graph.metadata_props[:]
    del model.metadata_props[:]
    for function in model.functions:
        del function.metadata_props[:]
        for node in function.node:
            del node.metadata_props[:]
