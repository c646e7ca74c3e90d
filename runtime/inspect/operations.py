"""How much one row of a model's input asks of a machine: products, weights, and what goes in and out. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ArtifactError


@dataclass(frozen=True, kw_only=True)
class Work:
    """`operations` per row: two (a product and a sum) for each multiply-accumulate of convolutions and matrix products.

    `weights` counts their elements, which a batch reads at least once; `elements` those of a row's inputs and outputs.
    """

    operations: int
    weights: int
    elements: int

    def bytes_per_row(self, batch: int, element_bytes: float) -> float:
        """The least that must cross the memory per row: the weights once per batch, inputs and outputs in 4 bytes."""
        return self.weights * element_bytes / batch + 4 * self.elements


def work_of(path: Path) -> Work:
    """The work of an ONNX graph whose first dimension is a symbolic batch. Raises ArtifactError where sizes are not known."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.shape.dim and value.type.tensor_type.shape.dim[0].dim_param:
            value.type.tensor_type.shape.dim[0].dim_value = 1
    del graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {item.name: tuple(item.dims) for item in graph.initializer}
    shapes = {value.name: _shape(value) for value in (*graph.input, *graph.output, *graph.value_info)} | weights
    operations = read = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            operations += 2 * _accumulations(node, shapes, path)
            read += sum(math.prod(weights[name]) for name in node.input if name in weights)
    ends = [value.name for value in (*graph.input, *graph.output) if value.name not in weights]
    return Work(operations=operations, weights=read, elements=sum(_size(shapes[name], path) for name in ends))


def _accumulations(node: Any, shapes: dict[str, tuple[int, ...]], path: Path) -> int:
    result = _size(shapes.get(node.output[0], ()), path)
    if node.op_type == "Conv":
        return result * _size(shapes.get(node.input[1], ())[1:], path)
    left = shapes.get(node.input[0], ())
    if not left:
        raise _unknown(path)
    transposed = any(item.name == "transA" and item.i for item in node.attribute)
    return result * (left[0] if transposed else left[-1])


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(size.dim_value if size.HasField("dim_value") else 0 for size in value.type.tensor_type.shape.dim)


def _size(shape: tuple[int, ...], path: Path) -> int:
    if not shape or not all(shape):
        raise _unknown(path)
    return math.prod(shape)


def _unknown(path: Path) -> ArtifactError:
    return ArtifactError(f"the sizes in {path.name} cannot be told without running it, so its operations are not counted")
