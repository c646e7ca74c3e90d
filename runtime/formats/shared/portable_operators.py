"""ONNX's operators on tensors of torch, and on whole numbers beside them.

Shapes are computed as numpy arrays of whole numbers, some of which may be symbols, so that tracing sees sizes and no tensors of
them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ....errors import BackendError

Attributes = Mapping[str, Any]
Operator = Callable[..., Any]
_DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
"""By the numbers of onnx.TensorProto.DataType."""


def as_tensor(value: Any) -> Tensor:
    """A tensor of what may be whole numbers."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    return torch.from_numpy(array.astype(np.int64) if array.dtype == object else array.copy())


def _sizes(value: Any) -> list[Any]:
    """Whole numbers, of which some may be symbols."""
    if isinstance(value, Tensor):
        raise BackendError("the portable graph computes a shape from the values of tensors, which has no translation to torch")
    return list(np.atleast_1d(value)) if value.dtype == object else np.atleast_1d(value).tolist()


def _known(*values: Any) -> bool:
    return not any(isinstance(value, Tensor) for value in values)


def _of_two(on_tensors: Operator, on_numbers: Operator) -> Operator:
    def compute(_: Attributes, a: Any, b: Any) -> Any:
        return on_numbers(a, b) if _known(a, b) else on_tensors(as_tensor(a), as_tensor(b))

    return compute


def _of_one(function: Operator) -> Operator:
    return lambda _, x: function(as_tensor(x))


def _axes(at: Attributes, given: Any) -> list[int] | None:
    return _sizes(given) if given is not None else at.get("axes")


def _pads(at: Attributes, rank: int) -> tuple[list[int], bool]:
    """Padding before and after each dimension, and whether both are the same."""
    if at.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise BackendError(f"the portable graph pads by auto_pad={at['auto_pad']}, which has no translation to torch")
    pads = list(at.get("pads", [0] * 2 * rank))
    return pads, pads[:rank] == pads[rank:]


def _padded(x: Tensor, pads: Sequence[Any], value: float = 0.0, mode: str = "constant") -> Tensor:
    """By ONNX's pads, all begins before all ends; torch has pairs, the last dimension first."""
    rank = len(pads) // 2
    pairs = [size for place in reversed(range(rank)) for size in (pads[place], pads[place + rank])]
    return (
        functional.pad(x, pairs, mode=mode, value=value)
        if mode == "constant"
        else functional.pad(x, pairs[: 2 * (rank - 2)], mode=mode)
    )


def _convolution(at: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = weight.ndim - 2
    pads, even = _pads(at, rank)
    if not even:
        x, pads = _padded(x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]]), [0] * rank
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    strides, dilations = at.get("strides", [1] * rank), at.get("dilations", [1] * rank)
    return function(x, weight, bias, strides, pads[:rank], dilations, at.get("group", 1))


def _pool(at: Attributes, x: Tensor, *, largest: bool) -> Tensor:
    kernel = at["kernel_shape"]
    rank = len(kernel)
    pads, even = _pads(at, rank)
    strides, ceil = at.get("strides", [1] * rank), bool(at.get("ceil_mode", 0))
    if largest:
        if not even:
            x, pads = _padded(x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], float("-inf")), [0] * rank
        function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
        return function(x, kernel, strides, pads[:rank], at.get("dilations", [1] * rank), ceil)
    count = bool(at.get("count_include_pad", 0))
    if not even:
        if not count:
            raise BackendError("the portable graph averages without an uneven padding, which has no translation to torch")
        x, pads = _padded(x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]]), [0] * rank
    averaged = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    return averaged(x, kernel, strides, pads[:rank], ceil, count)


def _reduce(function: Operator) -> Operator:
    def compute(at: Attributes, x: Tensor, axes: Any = None) -> Tensor:
        wanted = _axes(at, axes)
        if not wanted:
            if at.get("noop_with_empty_axes", 0):
                return x
            wanted = list(range(x.ndim))
        return function(x, wanted, bool(at.get("keepdims", 1)))

    return compute


def _gemm(at: Attributes, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a, b = (a.T if at.get("transA") else a), (b.T if at.get("transB") else b)
    product = a @ b if at.get("alpha", 1.0) == 1.0 else at["alpha"] * (a @ b)
    return product if c is None else product + (c if at.get("beta", 1.0) == 1.0 else at["beta"] * c)


def _shape(at: Attributes, x: Any) -> np.ndarray[Any, Any]:
    sizes = list(x.shape)[at.get("start", 0) : at.get("end")]
    found: np.ndarray[Any, Any] = np.empty(len(sizes), object)  # filled one by one: numpy would look into what is traced
    for index, size in enumerate(sizes):
        found[index] = size
    return found


def _reshape(at: Attributes, x: Any, shape: Any) -> Any:
    wanted = _sizes(shape)
    if not at.get("allowzero", 0):
        wanted = [x.shape[index] if isinstance(size, int) and size == 0 else size for index, size in enumerate(wanted)]
    return x.reshape(wanted)


def _gather(at: Attributes, x: Any, index: Any) -> Any:
    axis = at.get("axis", 0)
    if _known(x, index):
        return np.take(np.asarray(x), np.asarray(index).astype(np.int64), axis)
    x, index = as_tensor(x), as_tensor(index).long()
    index = torch.where(index < 0, index + x.shape[axis], index)
    taken = x.index_select(axis, index.reshape(-1))
    axis %= x.ndim
    return taken.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _slice(at: Attributes, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = _sizes(starts), _sizes(ends)
    places = range(len(first)) if axes is None else _sizes(axes)
    strides = [1] * len(first) if steps is None else _sizes(steps)
    for start, end, place, stride in zip(first, last, places, strides, strict=True):
        if stride < 0:
            if (start, end, stride) != (-1, -(2**63) + 1, -1) and not (start == -1 and end < -(2**31)):
                raise BackendError("the portable graph slices backwards, which has no translation to torch")
            x = x.flip(place)[(slice(None),) * (place % x.ndim) + (slice(None, None, -stride),)]
        else:
            x = x[(slice(None),) * (place % x.ndim) + (slice(start, None if end >= 2**31 - 1 else end, stride),)]
    return x


def _concat(at: Attributes, *parts: Any) -> Any:
    if not _known(*parts):
        return torch.cat([as_tensor(part) for part in parts], at["axis"])
    return np.concatenate([np.asarray(part) for part in parts], at["axis"])


def _squeeze(at: Attributes, x: Any, axes: Any = None) -> Any:
    wanted = _axes(at, axes)
    if wanted is None:
        return x.squeeze()
    wanted = [axis % x.ndim for axis in wanted]
    return x.squeeze(tuple(wanted)) if wanted else x


def _unsqueeze(at: Attributes, x: Any, axes: Any = None) -> Any:
    wanted = _axes(at, axes) or []
    rank = x.ndim + len(wanted)
    for axis in sorted(axis % rank for axis in wanted):
        x = np.expand_dims(x, axis) if _known(x) else x.unsqueeze(axis)
    return x


def _split(at: Attributes, x: Tensor, sizes: Any = None) -> tuple[Tensor, ...]:
    axis = at.get("axis", 0)
    if sizes is None and "split" not in at:
        return tuple(torch.chunk(x, at["num_outputs"], axis))
    return tuple(torch.split(x, _sizes(sizes) if sizes is not None else at["split"], axis))


def _expand(_: Attributes, x: Any, shape: Any) -> Tensor:
    x, wanted = as_tensor(x), _sizes(shape)
    x = x.reshape([1] * (len(wanted) - x.ndim) + list(x.shape)) if len(wanted) > x.ndim else x
    wanted = [1] * (x.ndim - len(wanted)) + wanted
    return x.expand([-1 if isinstance(size, int) and size == 1 else size for size in wanted])


def _clip(at: Attributes, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    low, high = (at.get(name) if value is None else value for name, value in (("min", low), ("max", high)))
    x = x if low is None else torch.maximum(x, torch.as_tensor(low, dtype=x.dtype))
    return x if high is None else torch.minimum(x, torch.as_tensor(high, dtype=x.dtype))


def _pad(at: Attributes, x: Tensor, pads: Any, value: Any = None, axes: Any = None) -> Tensor:
    given, places = _sizes(pads), list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in _sizes(axes)]
    whole = [0] * 2 * x.ndim
    for index, place in enumerate(places):
        whole[place], whole[place + x.ndim] = given[index], given[index + len(places)]
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}[at.get("mode", "constant")]
    return _padded(x, whole, 0.0 if value is None else float(value), mode)


def _scatter(at: Attributes, x: Any, index: Any, updates: Any) -> Tensor:
    if at.get("reduction", "none") != "none":
        raise BackendError("the portable graph adds in ScatterND, which has no translation to torch")
    places = as_tensor(index).long().unbind(-1)
    return as_tensor(x).index_put(places, as_tensor(updates))


def _softmax(function: Operator) -> Operator:
    def compute(at: Attributes, x: Tensor) -> Tensor:
        if at["opset"] >= 13:
            return function(x, at.get("axis", -1))
        flat = x.flatten(at.get("axis", 1))  # before, all dimensions from the axis on were one
        return function(flat, -1).reshape(x.shape)

    return compute


def _constant(at: Attributes) -> Any:
    from onnx import numpy_helper

    if "value" in at:
        value = numpy_helper.to_array(at["value"])
        return value if value.dtype.kind in "iub" else torch.from_numpy(value.copy())
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64)):
        if name in at:
            return np.asarray(at[name], dtype)
    return torch.tensor(at["value_float"] if "value_float" in at else at["value_floats"])


def _filled(at: Attributes, shape: Any) -> Tensor:
    from onnx import numpy_helper

    value = numpy_helper.to_array(at["value"]) if "value" in at else np.zeros(1, np.float32)
    return torch.full(_sizes(shape), value.item(), dtype=torch.from_numpy(value.copy()).dtype)


def _where(_: Attributes, condition: Any, a: Any, b: Any) -> Any:
    if _known(condition, a, b):
        return np.where(np.asarray(condition).astype(bool), a, b)
    return torch.where(as_tensor(condition), as_tensor(a), as_tensor(b))


def _normalized(at: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axis = at.get("axis", -1) % x.ndim
    return functional.layer_norm(x, list(x.shape[axis:]), weight.reshape(x.shape[axis:]), bias, at.get("epsilon", 1e-5))


OPERATORS: dict[str, Operator] = {
    "Add": _of_two(torch.add, operator.add),
    "And": _of_two(torch.logical_and, np.logical_and),
    "AveragePool": lambda at, x: _pool(at, x, largest=False),
    "BatchNormalization": lambda at, x, w, b, mean, var: functional.batch_norm(x, mean, var, w, b, eps=at.get("epsilon", 1e-5)),
    "Cast": lambda at, x: x if _known(x) and at["to"] in (6, 7) else as_tensor(x).to(_DTYPES[at["to"]]),
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Conv": _convolution,
    "Div": _of_two(lambda a, b: a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc"), operator.floordiv),
    "Dropout": lambda _, x, *rest: x,
    "Elu": lambda at, x: functional.elu(x, at.get("alpha", 1.0)),
    "Equal": _of_two(torch.eq, lambda a, b: np.asarray(a == b)),
    "Erf": _of_one(torch.erf),
    "Exp": _of_one(torch.exp),
    "Expand": _expand,
    "Flatten": lambda at, x: x.flatten(at.get("axis", 1)) if at.get("axis", 1) == 1 else _flat(x, at["axis"]),
    "Floor": _of_one(torch.floor),
    "Gather": _gather,
    "Gelu": lambda at, x: functional.gelu(x, approximate=at.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, x: x.mean(list(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda _, x: x.amax(list(range(2, x.ndim)), keepdim=True),
    "Greater": _of_two(torch.gt, operator.gt),
    "HardSigmoid": lambda at, x: torch.clamp(at.get("alpha", 0.2) * x + at.get("beta", 0.5), 0, 1),
    "HardSwish": _of_one(functional.hardswish),
    "Identity": lambda _, x: x,
    "InstanceNormalization": lambda at, x, w, b: functional.instance_norm(x, weight=w, bias=b, eps=at.get("epsilon", 1e-5)),
    "LayerNormalization": _normalized,
    "LeakyRelu": lambda at, x: functional.leaky_relu(x, at.get("alpha", 0.01)),
    "Less": _of_two(torch.lt, operator.lt),
    "Log": _of_one(torch.log),
    "LogSoftmax": _softmax(functional.log_softmax),
    "MatMul": lambda _, a, b: as_tensor(a) @ as_tensor(b),
    "Max": lambda _, first, *rest: _folded(torch.maximum, first, rest),
    "MaxPool": lambda at, x: _pool(at, x, largest=True),
    "Min": lambda _, first, *rest: _folded(torch.minimum, first, rest),
    "Mish": _of_one(functional.mish),
    "Mul": _of_two(torch.mul, operator.mul),
    "Neg": lambda _, x: -x,
    "Not": lambda _, x: np.logical_not(x) if _known(x) else ~x,
    "Pad": _pad,
    "Pow": _of_two(torch.pow, operator.pow),
    "PRelu": lambda _, x, slope: torch.where(x < 0, x * slope, x),
    "Reciprocal": _of_one(torch.reciprocal),
    "ReduceL2": _reduce(lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMean": _reduce(torch.mean),
    "ReduceMin": _reduce(torch.amin),
    "ReduceSum": _reduce(torch.sum),
    "Relu": _of_one(functional.relu),
    "Reshape": _reshape,
    "ScatterND": _scatter,
    "Selu": lambda at, x: functional.selu(x),
    "Shape": _shape,
    "Sigmoid": _of_one(torch.sigmoid),
    "Slice": _slice,
    "Softmax": _softmax(functional.softmax),
    "Softplus": _of_one(functional.softplus),
    "Split": _split,
    "Sqrt": _of_one(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _of_two(torch.sub, operator.sub),
    "Swish": lambda at, x: x * torch.sigmoid(at.get("alpha", 1.0) * x),
    "Tanh": _of_one(torch.tanh),
    "Tile": lambda _, x, counts: x.repeat(_sizes(counts)),
    "Transpose": lambda at, x: x.permute(at["perm"] if "perm" in at else [*reversed(range(x.ndim))]),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""ONNX's operators by name: functions of the attributes (with the `opset`) and the inputs."""


def _flat(x: Tensor, axis: int) -> Tensor:
    return x.reshape(1, -1) if axis == 0 else x.flatten(0, axis - 1).flatten(1)


def _folded(function: Operator, first: Any, rest: Sequence[Any]) -> Tensor:
    found = as_tensor(first)
    for value in rest:
        found = function(found, as_tensor(value))
    return found
