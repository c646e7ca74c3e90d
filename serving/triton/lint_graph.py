"""The configuration of an `onnxruntime` model against the graph that it opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .finding import Finding, error, warning
from .lint_folder import DEFAULT_FILES
from .subject import ModelFolder, Repository, datatype_name

# onnx.TensorProto.DataType -> Triton's, as in onnxruntime_backend's ConvertFromOnnxDataType.
_TYPES = {
    "FLOAT": "TYPE_FP32", "FLOAT16": "TYPE_FP16", "DOUBLE": "TYPE_FP64", "BFLOAT16": "TYPE_BF16", "BOOL": "TYPE_BOOL",
    "INT8": "TYPE_INT8", "INT16": "TYPE_INT16", "INT32": "TYPE_INT32", "INT64": "TYPE_INT64", "STRING": "TYPE_STRING",
    "UINT8": "TYPE_UINT8", "UINT16": "TYPE_UINT16", "UINT32": "TYPE_UINT32", "UINT64": "TYPE_UINT64",
}  # fmt: skip

# Name -> Triton's data type and the sizes, None where they vary.
_Tensors = Mapping[str, tuple[str, tuple[int | None, ...]]]


def check(model: ModelFolder, repository: Repository) -> Iterator[Finding]:
    """What onnxruntime_backend compares when it opens the file: its ValidateInputs and ValidateOutputs."""
    if model.backend != "onnxruntime":
        return
    file = model.config.default_model_filename or DEFAULT_FILES["onnxruntime"]
    for version in model.wanted_versions:
        path = model.folder / str(version) / file
        if not path.is_file():  # another check's finding
            continue
        where = f"{version}/{file}"
        try:
            inputs, outputs = _tensors(path)
        except Exception as reason:  # noqa: BLE001 - whatever protobuf or onnx raises on bytes that are no graph
            yield error("TR011", where, f"it holds no ONNX graph ({type(reason).__name__}); export it again")
            continue
        yield from _side(model, where, "input", model.config.input, inputs)
        yield from _side(model, where, "output", model.config.output, outputs)


def _side(model: ModelFolder, where: str, side: str, declared: Any, actual: _Tensors) -> Iterator[Finding]:
    batches = model.config.max_batch_size > 0
    names = {tensor.name for tensor in declared}
    if absent := [tensor for tensor in actual if tensor not in names]:
        report, remedy = (error, "declare it") if side == "input" else (warning, "nobody can ask for it unless it is declared")
        yield report("TR011", side, f"the graph in {where} has {side} {absent[0]!r}; {remedy}")
    for index, tensor in enumerate(declared):
        at = f"{side}[{index}]"
        if tensor.name not in actual:
            yield error("TR011", at, f"the graph in {where} has no {side} {tensor.name!r}; it has {', '.join(actual)}")
            continue
        kind, shape = actual[tensor.name]
        if tensor.data_type and datatype_name(tensor.data_type) != kind:
            yield error("TR011", at, f"{tensor.name!r} is {datatype_name(tensor.data_type)}, in {where} it is {kind}")
        if batches and (not shape or shape[0] is not None):
            first = shape[0] if shape else "no dimension"
            yield error(
                "TR011",
                at,
                f"the graph in {where} is for a batch of {first} alone; export it with a batch that varies, "
                "or set max_batch_size: 0 and put the batch into dims",
            )
            continue
        rows = tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
        own = shape[1:] if batches else shape
        if len(rows) != len(own) or any(
            size not in (None, given) and given != -1 for given, size in zip(rows, own, strict=True)
        ):
            hint = "" if batches else "; without max_batch_size, dims must hold the batch too"
            yield error("TR011", f"{at}.dims", f"{list(rows)} does not fit {_shown(own)} of {where}{hint}")


def _tensors(path: Path) -> tuple[_Tensors, _Tensors]:
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    if not graph.output:
        raise ValueError("a graph has outputs")
    weights = {weight.name for weight in graph.initializer}

    def described(values: Any) -> _Tensors:
        found = {}
        for value in values:
            if value.name in weights:  # graphs of old IR versions list their weights as inputs
                continue
            kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            dims = value.type.tensor_type.shape.dim
            sizes = tuple(size.dim_value if size.HasField("dim_value") else None for size in dims)
            found[value.name] = (_TYPES.get(kind, kind), sizes)
        return found

    return described(graph.input), described(graph.output)


def _shown(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("-1" if size is None else str(size) for size in shape) + "]"
