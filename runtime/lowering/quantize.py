"""Static int8: the portable graph with quantize/dequantize pairs around what an integer kernel computes. Torch-free.

Weights are signed and per output channel, activations unsigned and per tensor (on x86 the unsigned-by-signed instructions are
the fast ones: measured 3.3 times faster than signed by signed), ranges are the least and largest values that the calibration
images reach. Placement follows the data: between convolutions everything stays in integers, as do additions and
poolings there; a matrix product takes integers and gives floats, because what surrounds it in a transformer (residual
stream, softmax, layer norm) loses accuracy in 8 bits and gains no speed. ONNX Runtime and OpenVINO both fuse this form.

ONNX Runtime is fastest where all of that stays in integers. OpenVINO computes gates (`x * sigmoid(x)`, squeeze and
excitation) faster in floats, and they lose less there: EfficientNet-B0 in int8 takes 0.55 times as long so, RegNetY 0.87,
MobileNetV3 0.84, on two cores with AVX-512 VNNI. So it is given a form of its own of graphs that have gates.

Where a graph loses too much accuracy, the precision asks for a share of layers in floats: those that lose most in 8 bits.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import INT8, Precision
from ..base.atomic import aside
from ..base.calibration import Calibration, Observer, layers_in_floats, required, worst_first
from ..base.fingerprint import fingerprint
from ..base.passes import PassRecord
from .equalize import drop_unread, equalizable, equalize
from .portable import ONNX_FILE, PortableGraph, write_onnx

if TYPE_CHECKING:
    import numpy as np

    from ..capture.capture import CapturedGraph

_PRODUCTS = frozenset({"MatMul", "Gemm"})
# What may stay in integers between convolutions. All of them map one tensor to one of like range, or combine such.
_CHAIN = frozenset(
    {
        "Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "HardSwish", "MaxPool", "AveragePool",
        "GlobalAveragePool", "ReduceMean", "Add", "Mul", "Concat", "Pad", "Resize", "Split", "Slice", "Flatten",
    }
)  # fmt: skip
_GATES = frozenset({"Sigmoid", "HardSigmoid", "HardSwish", "Mul"})
_ROWS_PER_RUN = 4
_SUMMED_EVERY = 4  # runs: enough images to rank layers by, while summing all would take as long as running them
_INTEGER_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8")


def write_int8(
    directory: Path, calibration: Calibration, precision: Precision = INT8, *, float_gates: bool = False
) -> list[str]:
    """Write the quantized graph beside model.onnx, unless it is there, and return the names of its files.

    With `float_gates`, gates are computed in floats; a graph without any is the same file. Raises BackendError when nothing in
    the graph can be quantized, a value is not finite, or a library is missing.
    """
    float_gates = float_gates and calibration.has_gates is not False
    if (directory / (name := _file_name(precision, float_gates))).exists():
        return [name]
    try:
        import onnxruntime.quantization  # noqa: F401
    except ImportError as error:
        raise BackendError(f"int8 needs onnxruntime's quantizer: pip install onnxruntime ({error})") from error
    import onnx

    if (directory / f"{ONNX_FILE}.data").exists():
        raise BackendError("graphs of more than 2 GB are not quantized")
    model = _with_shapes(onnx.load(directory / ONNX_FILE))
    chosen = _quantizable(model)
    calibration.has_gates = any(node.op_type in _GATES for node in chosen)
    float_gates = float_gates and calibration.has_gates
    if (directory / (name := _file_name(precision, float_gates))).exists():
        return [name]
    if not _layers(chosen):
        raise BackendError("the graph has no convolution or matrix product with constant weights, so int8 gains nothing")
    if not calibration.of_portable:
        calibration.of_portable.update(_statistics(model, chosen, calibration.inputs))
    seen = equalize(model, _products(chosen), calibration.of_portable)
    if float_gates:
        chosen = [node for node in chosen if node.op_type not in _GATES]
    chosen = _linked(_without_layers_in_floats(model, chosen, seen, precision))
    quantized = _quantize(model, chosen, seen)
    _drop_idle_pairs(quantized, {node.name for node in chosen})
    with aside(directory, name) as (path,):
        onnx.save_model(quantized, str(path))
    return [name]


def _file_name(precision: Precision, float_gates: bool) -> str:
    return f"model-int8{f'-{precision.level}' if precision.level else ''}{'-float-gates' if float_gates else ''}.onnx"


def write_portable(
    graph: CapturedGraph | PortableGraph,
    directory: Path,
    backend: str,
    precision: Precision,
    records: list[PassRecord] | None,
    *,
    float_gates: bool = False,
) -> list[str]:
    """Write the portable graph, quantized where the precision is int8, and return the names of the files to open.

    The pass "int8" is recorded for that backend. Raises BackendError, also where int8 has no calibration.
    """
    files = write_onnx(graph, directory)
    if not precision.is_int8:
        return files
    files = write_int8(directory, required(graph.calibration), precision, float_gates=float_gates)
    if records is not None:
        records.append(PassRecord.of_target("int8", f"{backend} {precision}"))
    return files


def _with_shapes(model: Any) -> Any:
    """The model with value infos, which the quantizer wants, and a name for every node, by which it is told what to do."""
    import onnx

    model = onnx.shape_inference.infer_shapes(model)
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    return model


def _quantizable(model: Any) -> list[Any]:
    """The nodes to quantize, in graph order."""
    constants = {item.name for item in model.graph.initializer}
    matrices = {item.name for item in model.graph.initializer if len(item.dims) == 2}
    floats = _float_tensors(model)
    in_chain: set[str] = set()  # tensors that come from a convolution through nothing but chain operators
    chosen = []
    for node in model.graph.node:
        if node.op_type == "Conv":
            wanted = node.input[1] in constants
        elif node.op_type in _PRODUCTS:
            wanted = node.input[1] in matrices
        elif node.op_type in _CHAIN:
            wanted = all(name in in_chain for name in node.input if name and name in floats and name not in constants)
            wanted = wanted and any(name in in_chain for name in node.input)
        else:
            wanted = False
        if wanted:
            chosen.append(node)
            if node.op_type not in _PRODUCTS:
                in_chain.update(node.output)
    return chosen


def _float_tensors(model: Any) -> set[str]:
    import onnx

    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    found = {value.name for value in values if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    return found | {item.name for item in model.graph.initializer if item.data_type == onnx.TensorProto.FLOAT}


def _statistics(model: Any, chosen: Sequence[Any], inputs: Sequence[np.ndarray[Any, Any]]) -> dict[str, Observer]:
    """What was seen of every tensor at the borders of the chosen nodes, over all calibration rows, a few at a time."""
    import numpy as np
    import onnx
    import onnxruntime

    floats, constants = _float_tensors(model), {item.name for item in model.graph.initializer}
    names = {name for node in chosen for name in (*node.input, *node.output) if name in floats and name not in constants}
    # Channels are the second dimension to a convolution, the last to a matrix product.
    axes = {
        name: -1 if node.op_type in _PRODUCTS else 1 for node in _layers(chosen) for name in (node.input[0], node.output[0])
    }
    by_channel = {norm.node.output[0] for norm in equalizable(model, _products(chosen))}
    given = {value.name for value in model.graph.input}
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    known = {value.name for value in watched.graph.output}
    for name in sorted(names - known - given):
        watched.graph.output.add().name = name
    options = onnxruntime.SessionOptions()
    # Fusions would swallow the tensors that are asked for, and rounding differs between them.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    order = [value.name for value in session.get_inputs()]
    wanted = sorted(names - given)
    observers: defaultdict[str, Observer] = defaultdict(Observer)
    for run, start in enumerate(range(0, len(inputs[0]), _ROWS_PER_RUN)):
        rows = [np.ascontiguousarray(value[start : start + _ROWS_PER_RUN]) for value in inputs]
        feed = dict(zip(order, rows, strict=True))
        for name, values in (*zip(wanted, session.run(wanted, feed), strict=True), *feed.items()):
            if name in names and values.size:
                others = tuple(range(values.ndim - 1)) if name in by_channel else None
                ends = values.min(others), values.max(others)  # NaN where a value is
                if not all(np.isfinite(end).all() for end in ends):
                    raise BackendError(f"the calibration images make {name} NaN or infinite, so it has no range")
                summed = name in axes and run % _SUMMED_EVERY == 0
                observers[name].take(*ends, *(_channel_sums(values, axes[name]) if summed else ()))
    return dict(observers)


def _channel_sums(values: np.ndarray[Any, Any], axis: int) -> tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """How many values each channel has, their sums and those of their squares: of each row in float32, of rows in float64."""
    import numpy as np

    last = axis == -1
    channels = values.shape[axis]
    rows = values.reshape(len(values), -1, channels) if last else values.reshape(len(values), channels, -1)
    squares = np.einsum("nlc,nlc->nc" if last else "ncl,ncl->nc", rows, rows)
    totals = rows.sum(axis=1 if last else 2).sum(axis=0, dtype=np.float64)
    return values.size // channels, totals, squares.sum(axis=0, dtype=np.float64)


def _layers(nodes: Sequence[Any]) -> list[Any]:
    """The convolutions and products among them: the others follow these."""
    return [node for node in nodes if node.op_type in _PRODUCTS or node.op_type == "Conv"]


def _products(nodes: Sequence[Any]) -> list[Any]:
    return [node for node in nodes if node.op_type in _PRODUCTS]


def _without_layers_in_floats(model: Any, chosen: list[Any], seen: Mapping[str, Observer], precision: Precision) -> list[Any]:
    """The nodes without those layers that lose most in 8 bits."""
    layers = _layers(chosen)
    count = layers_in_floats(precision, len(layers))
    if not count:
        return chosen
    weights = {item.name: item for item in model.graph.initializer}
    known = [node for node in layers if node.input[0] in seen and node.output[0] in seen]
    order = worst_first([(seen[node.input[0]], seen[node.output[0]], _squares(node, weights[node.input[1]])) for node in known])
    excluded = {known[place].name for place in order[:count]}
    return [node for node in chosen if node.name not in excluded]


def _squares(node: Any, weight: Any) -> np.ndarray[Any, Any]:
    """The sums of a layer's squared weights, float64 [channels that it gives]."""
    import numpy as np
    from onnx.numpy_helper import to_array

    values = to_array(weight).astype(np.float64)
    rows = node.op_type == "Conv" or any(item.name == "transB" and item.i for item in node.attribute)
    return np.square(values if rows else values.T).reshape(values.shape[0 if rows else 1], -1).sum(1)


def _linked(nodes: Sequence[Any]) -> list[Any]:
    """Without the chain operators that do not lie between quantized convolutions or products: integers would come from
    nowhere, or go nowhere. The quantizer would even drop a Relu whose work its pair then does, and the pair is idle."""
    fed: set[str] = set()
    forward = []
    for node in nodes:
        if node.op_type not in _CHAIN or any(name in fed for name in node.input):
            forward.append(node)
            if node.op_type not in _PRODUCTS:
                fed.update(node.output)
    read: set[str] = set()
    backward = []
    for node in reversed(forward):
        if node.op_type not in _CHAIN or any(name in read for name in node.output):
            backward.append(node)
            read.update(node.input)
    return backward[::-1]


def _quantize(model: Any, chosen: Sequence[Any], observers: Mapping[str, Observer]) -> Any:
    import numpy as np
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    ranges = TensorsData(
        CalibrationMethod.MinMax,
        {
            name: TensorData(lowest=np.array(seen.low, np.float32), highest=np.array(seen.high, np.float32))
            for name, seen in observers.items()
        },
    )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    with _quiet_root_logger():
        quantizer = QDQQuantizer(
            copy,
            True,  # per channel
            _must_reduce_range(),
            QuantType.QInt8,
            QuantType.QUInt8,
            ranges,
            [node.name for node in chosen],
            [],
            sorted({node.op_type for node in chosen}),
            {"OpTypesToExcludeOutputQuantization": sorted(_PRODUCTS), "MatMulConstBOnly": True},
        )
        try:
            quantizer.quantize_model()
        except Exception as error:
            raise BackendError(f"onnxruntime's quantizer fails on this graph: {error}") from error
    quantizer.model.topological_sort()
    return quantizer.model.model


@functools.cache
def _must_reduce_range() -> bool:
    """x86 without integer dot products adds pairs of 8-bit products in 16 bits, which overflows unless weights have 7 bits."""
    flags = fingerprint()["flags"]
    return "avx2" in flags and not any(flag in flags for flag in _INTEGER_PRODUCTS)


def _drop_idle_pairs(model: Any, quantized: set[str]) -> None:
    """Remove the pairs whose result only float operators read, such as a transformer's residual stream after its first
    convolution: they would cost accuracy and save nothing."""
    graph = model.graph
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    outputs = {value.name for value in graph.output}
    constants = {item.name for item in graph.initializer}
    idle = {}
    for node in graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in constants:
            continue
        pairs = readers[node.output[0]]
        if all(
            pair.op_type == "DequantizeLinear"
            and pair.output[0] not in outputs
            and not any(reader.name in quantized for reader in readers[pair.output[0]])
            for pair in pairs
        ):
            idle[node.name] = (node, pairs)
    for node, pairs in idle.values():
        for pair in pairs:
            for reader in readers[pair.output[0]]:
                for index, name in enumerate(reader.input):
                    if name == pair.output[0]:
                        reader.input[index] = node.input[0]
            graph.node.remove(pair)
        graph.node.remove(node)
    drop_unread(model)


@contextlib.contextmanager
def _quiet_root_logger() -> Iterator[None]:
    """The quantizer advises on the root logger at every call."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)
