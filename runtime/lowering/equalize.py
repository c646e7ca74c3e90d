"""Channels made alike before int8: what a layer norm gives has one range for all its channels then. Torch-free.

A few channels of a transformer's residual stream are often many times as large as the others (Dettmers et al., LLM.int8(),
2022), and the others are drowned by the noise of a range that holds them all. A layer norm ends with a factor and an offset
per channel; divided by s there, and the weights of the products that read it multiplied by s, the graph computes what it did
(Xiao et al., SmoothQuant, 2022), and nothing is computed that was not before.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base.calibration import Observer

if TYPE_CHECKING:
    import numpy as np

_SHARES = (0.25, 0.5, 0.75, 1.0)  # of a channel's range that its divisor takes; SmoothQuant takes 0.5
# Times the noise as it is, at most. Where all channels reach the range's ends, other images leave it more often, which the
# noise does not tell: four transformers whose channels are much alike (0.6 to 0.75) came out as before, by 4 % either way.
_WORTH = 0.5
_SMALLEST = 1e-3  # of the largest channel: dead ones would be divided by next to nothing


@dataclass(frozen=True)
class _Norm:
    """A layer norm and the products that read it, which nothing else does."""

    node: Any
    products: Sequence[Any]
    affine: Sequence[str]  # its factors, and its offsets if it has any


def equalizable(model: Any, products: Sequence[Any]) -> list[_Norm]:
    """Layer norms over the last dimension that only some of these products read, by constant matrices."""
    constants = {item.name: item for item in model.graph.initializer}
    outputs = {value.name for value in model.graph.output}
    chosen = {node.name for node in products}
    readers = defaultdict(list)
    for node in model.graph.node:
        for name in node.input:
            readers[name].append(node)
    found = []
    for node in model.graph.node:
        if node.op_type != "LayerNormalization" or node.output[0] in outputs:
            continue
        affine, read_by = [name for name in node.input[1:] if name], readers[node.output[0]]
        known = all(name in constants and len(constants[name].dims) == 1 for name in affine)
        if known and read_by and all(reader.name in chosen and reader.input[0] == node.output[0] for reader in read_by):
            found.append(_Norm(node, read_by, affine))
    return found


def equalize(model: Any, products: Sequence[Any], seen: Mapping[str, Observer]) -> dict[str, Observer]:
    """Change the model in place where 8 bits lose less so, and return what is seen of its tensors then."""
    from onnx.numpy_helper import to_array

    seen = dict(seen)
    constants = {item.name: to_array(item) for item in model.graph.initializer}
    for norm in equalizable(model, products):
        given = norm.node.output[0]
        divisors = _divisors(seen[given], [_by_input(node, constants[node.input[1]]) for node in norm.products])
        if divisors is None:
            continue
        for place, name in enumerate(norm.node.input):
            if name in norm.affine:
                norm.node.input[place] = _added(model, f"{given}_equalized_{place}", constants[name] / divisors)
        for node in norm.products:
            weights = _by_input(node, constants[node.input[1]]) * divisors[:, None]
            node.input[1] = _added(model, f"{node.name}_equalized", _by_input(node, weights))
        seen[given] = seen[given].divided(divisors)
    drop_unread(model)
    return seen


def _divisors(seen: Observer, weights: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """Of the channels, float64 [channels], for weights [channels, n]; None where none makes the noise clearly less.

    They are tried by the noise that they leave in what the products give: that of the range which all channels share, and that
    of weights, whose ranges grow.
    """
    import numpy as np

    reach = np.maximum(-seen.lows, seen.highs)
    heavy = np.max([np.abs(matrix).max(1) for matrix in weights], axis=0)
    if not reach.max() or not heavy.max():
        return None
    reach, heavy = (np.maximum(values, _SMALLEST * values.max()) for values in (reach, heavy))
    tried = [reach**share / heavy**other for share in _SHARES for other in {0.0, 1.0 - share}]
    tried = [divisors / np.exp(np.log(divisors).mean()) for divisors in tried]
    noise = functools.partial(_noise, seen, weights)
    best = min(tried, key=noise)
    return best if noise(best) < _WORTH * noise(np.ones_like(reach)) else None


def _noise(seen: Observer, weights: Sequence[np.ndarray[Any, Any]], divisors: np.ndarray[Any, Any]) -> float:
    """Its variance in all that the products give: of steps of a range's 255th, and of the 127th of each column of weights."""
    import numpy as np

    divided = seen.divided(divisors)
    power, total = float(divided.power.sum()), 0.0
    for matrix in weights:
        scaled = matrix * divisors[:, None]
        total += divided.noise * float(np.square(scaled).sum())
        total += power * float(np.square(np.abs(scaled).max(0) / 127).sum()) / 12
    return total


def _by_input(node: Any, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A product's matrix with a row for each channel that it reads, or back."""
    turned = node.op_type == "Gemm" and any(item.name == "transB" and item.i for item in node.attribute)
    return weights.T if turned else weights


def _added(model: Any, name: str, values: np.ndarray[Any, Any]) -> str:
    import numpy as np
    from onnx.numpy_helper import from_array

    model.graph.initializer.append(from_array(np.ascontiguousarray(values, np.float32), name))
    return name


def drop_unread(model: Any) -> None:
    """Remove the constants that nothing reads any more."""
    graph = model.graph
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for item in [item for item in graph.initializer if item.name not in read]:
        graph.initializer.remove(item)
