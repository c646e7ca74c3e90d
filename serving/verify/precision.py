"""What lower precisions make of a packaged model: its portable graph with every value rounded as they round it.

No two libraries round at the same places, so such a graph does not give an endpoint's very answers. But what it adds to them
points the same way, for most of it is the rounding of the weights, which all do alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .reference import Reference

Scores = Callable[[np.ndarray], np.ndarray]

PRECISIONS = ("fp16", "bf16", "int8", "int8 with one scale per tensor")
_WEIGHED = {"Conv": 0, "Gemm": None, "MatMul": -1, "ConvTranspose": 1}
"""Operators with weights, and the axis of their output channels; of Gemm it is an attribute's."""
_FILE = "model.onnx"


def simulated(reference: Reference, precision: str, rows: np.ndarray) -> Scores | None:
    """What the model would score in one of PRECISIONS (int8's ranges are those of `rows`); None where that cannot be made."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    path = reference.artifact.path / _FILE
    if not path.is_file():
        return None
    try:
        model = onnx.load(str(path))
        if precision.startswith("int8"):
            _quantize(model, _ranges(model, rows), per_channel=precision == "int8")
        else:
            _round(onnx.shape_inference.infer_shapes(model, data_prop=False), model, precision)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        name, output = session.get_inputs()[0].name, session.get_outputs()[0].name

        def scores(batch: np.ndarray) -> np.ndarray:
            found = [session.run([output], {name: batch[at : at + 8]})[0] for at in range(0, len(batch), 8)]
            return np.concatenate(found).reshape(len(batch), -1).astype(np.float64)

        scores(rows[:1])
    except Exception:  # noqa: BLE001 - whatever onnx and onnxruntime raise over a graph that they cannot run so
        return None
    return scores


def resemblance(error: np.ndarray, simulation: np.ndarray) -> float:
    """The cosine between what an endpoint adds to the right answers and what a simulation adds."""
    size = float(np.linalg.norm(error) * np.linalg.norm(simulation))
    return float((error * simulation).sum() / size) if size > 0 else 0.0


def _round(inferred: Any, model: Any, precision: str) -> None:
    """Cast every float value to the precision and back, where it arises."""
    from onnx import TensorProto, helper, numpy_helper

    kind = TensorProto.FLOAT16 if precision == "fp16" else TensorProto.BFLOAT16
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = _rounded(numpy_helper.to_array(tensor), precision)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    described = [*inferred.graph.value_info, *inferred.graph.output]
    floats = {one.name for one in described if one.type.tensor_type.elem_type == TensorProto.FLOAT}
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in floats:
                node.output[index] = f"{name}/exact"
                nodes.append(helper.make_node("Cast", [f"{name}/exact"], [f"{name}/low"], to=kind))
                nodes.append(helper.make_node("Cast", [f"{name}/low"], [name], to=TensorProto.FLOAT))
    del graph.node[:]
    graph.node.extend(nodes)


def _rounded(values: np.ndarray, precision: str) -> np.ndarray:
    if precision == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
    return ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)


def _ranges(model: Any, rows: np.ndarray) -> dict[str, tuple[float, float]]:
    """The least and largest value of each input of an operator with weights, over the rows."""
    import onnx
    import onnxruntime

    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    weights = {tensor.name for tensor in probe.graph.initializer}
    own = probe.graph.input[0].name
    names = [node.input[0] for node in probe.graph.node if node.op_type in _WEIGHED and node.input[1] in weights]
    names = [name for name in dict.fromkeys(names) if name not in weights]
    listed = {one.name for one in probe.graph.output}
    probe.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for name in names if name != own and name not in listed
    )
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = [name for name in names if name != own]
    found = {own: (float(rows.min()), float(rows.max()))}
    for at in range(0, len(rows), 8):
        for name, values in zip(wanted, session.run(wanted, {own: rows[at : at + 8]}) if wanted else [], strict=True):
            low, high = found.get(name, (0.0, 0.0))
            found[name] = (min(low, float(values.min())), max(high, float(values.max())))
    return {name: found[name] for name in names}


def _quantize(model: Any, ranges: dict[str, tuple[float, float]], *, per_channel: bool) -> None:
    """Weights to 8 bits, the values that they meet to 8 bits per tensor."""
    from onnx import helper, numpy_helper

    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[Any] = []
    done: set[str] = set()
    for node in graph.node:
        if node.op_type in _WEIGHED and node.input[1] in tensors and node.input[0] in ranges:
            weight, name = tensors[node.input[1]], node.input[0]
            values = numpy_helper.to_array(weight)
            if values.dtype == np.float32 and values.ndim > 1:
                weight.CopyFrom(
                    numpy_helper.from_array(_fake_quantized(values, _axis(node) if per_channel else None), weight.name)
                )
            if name not in done:
                done.add(name)
                low, high = min(ranges[name][0], 0.0), max(ranges[name][1], 0.0)
                scale = max((high - low) / 255, 1e-12)
                graph.initializer.append(numpy_helper.from_array(np.float32(scale), f"{name}/scale"))
                graph.initializer.append(
                    numpy_helper.from_array(np.uint8(np.clip(round(-low / scale), 0, 255)), f"{name}/zero")
                )
                parts = [name, f"{name}/scale", f"{name}/zero"]
                nodes.append(helper.make_node("QuantizeLinear", parts, [f"{name}/low"]))
                nodes.append(helper.make_node("DequantizeLinear", [f"{name}/low", *parts[1:]], [f"{name}/back"]))
            node.input[0] = f"{name}/back"
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _axis(node: Any) -> int:
    axis = _WEIGHED[node.op_type]
    if axis is not None:
        return axis
    return 0 if any(one.name == "transB" and one.i for one in node.attribute) else 1


def _fake_quantized(values: np.ndarray, axis: int | None) -> np.ndarray:
    others = None if axis is None else tuple(index for index in range(values.ndim) if index != axis % values.ndim)
    scale = np.maximum(np.abs(values).max(axis=others, keepdims=True) / 127, 1e-12)
    return (np.rint(values / scale) * scale).astype(np.float32)
