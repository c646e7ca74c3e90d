"""A portable graph cut before its last layer, whose classes are dealt out to several graphs. Needs onnx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArtifactError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_FEATURES = "headrace_features"
# What may follow the last layer: each class by itself, with numbers that are the same for all classes or one for each.
_PER_CLASS = ("Identity", "Add", "Sub", "Mul", "Div", "Clip")


@dataclass(frozen=True)
class Head:
    """The last layer: `nodes` in order of execution, of which the first takes `features` [rows, width], the constants that they
    read, and by name the axis along which the classes of a constant lie (None: it is the same for all)."""

    features: str
    nodes: tuple[NodeProto, ...]
    constants: Mapping[str, np.ndarray] = field(repr=False)
    axes: Mapping[str, int | None]
    width: int


def cut(model: ModelProto, bounds: list[tuple[int, int]]) -> tuple[ModelProto, Iterator[ModelProto]]:
    """The trunk, from the model's inputs to the features, and for each of the bounds a graph from these to the scores of those
    classes, made when it is asked for. Raises ArtifactError where the scores do not come of a matrix product with a weight."""
    head = find_head(model, bounds[-1][1])
    return _trunk(model, head), (_part(model, head, first, end) for first, end in bounds)


def find_head(model: ModelProto, classes: int) -> Head:
    """The last layer of a graph with one output [batch, classes]."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    varying = {value.name for value in graph.input} - {value.name for value in graph.initializer}
    for node in graph.node:
        if not varying.isdisjoint(reads(node)):
            varying.update(node.output)
    nodes: list[Any] = []
    axes: dict[str, int | None] = {}
    constants: dict[str, np.ndarray] = {}
    name = graph.output[0].name
    while True:
        node = makers.get(name)
        found = [index for index, given in enumerate(node.input) if given in varying] if node else []
        product = node is not None and node.op_type in ("Gemm", "MatMul") and found == [0]
        if node is None or len(found) != 1 or not (product or node.op_type in _PER_CLASS):
            met = f"{node.op_type} {node.name!r}" if node else f"{name!r}"
            raise ArtifactError(
                f"the scores do not come of a linear layer, but of {met}; what can be split ends with a matrix product with a "
                f"weight, followed by nothing but {', '.join(_PER_CLASS)} with constants"
            )
        nodes.insert(0, node)
        name = node.input[found[0]]
        for index, given in enumerate(node.input):
            if given and index != found[0]:
                value = constants[given] = _value(model, given)
                axis = _weight_axis(node) if product and index == 1 else _axis(value, classes, node)
                if axes.setdefault(given, axis) != axis:
                    raise ArtifactError(f"{given!r} is read along several of its axes; export the model with a copy for each")
        if product:
            weight = constants[node.input[1]]
            break
    axis = axes[node.input[1]]
    if weight.dtype != np.float32 or weight.ndim != 2 or weight.shape[axis or 0] != classes:
        raise ArtifactError(
            f"the last weight is {weight.dtype}{list(weight.shape)}; a split one is float32, for {classes} classes"
        )
    return Head(name, tuple(nodes), constants, axes, weight.size // classes)


def _weight_axis(node: NodeProto) -> int:
    flags = {attribute.name: attribute.i for attribute in node.attribute}
    if flags.get("transA"):
        raise ArtifactError(f"{node.name!r} takes its features transposed, which cannot be split")
    return 0 if flags.get("transB") else 1


def _axis(value: np.ndarray, classes: int, node: NodeProto) -> int | None:
    """Where a constant beside the scores has its classes."""
    if value.ndim > 2 or value.size not in (1, classes) or (value.size > 1 and value.shape[-1] != classes):
        raise ArtifactError(
            f"{node.op_type} {node.name!r} has a constant of shape {list(value.shape)}, not one number or {classes}"
        )
    return value.ndim - 1 if value.size > 1 else None


def _trunk(model: ModelProto, head: Head) -> ModelProto:
    from onnx import TensorProto, helper

    nodes = [*needed(model, [head.features]), helper.make_node("Identity", [head.features], [_FEATURES])]
    read = {name for node in nodes for name in reads(node)}
    features = helper.make_tensor_value_info(_FEATURES, TensorProto.FLOAT, ["batch", head.width])
    weights = [value for value in model.graph.initializer if value.name in read]
    return like(model, nodes, list(model.graph.input), [features], weights)


def _part(model: ModelProto, head: Head, first: int, end: int) -> ModelProto:
    from onnx import TensorProto, helper, numpy_helper

    weights = []
    for name, value in head.constants.items():
        axis = head.axes[name]
        own = value if axis is None else value[(slice(None),) * axis + (slice(first, end),)]
        weights.append(numpy_helper.from_array(np.ascontiguousarray(own), name))
    features = helper.make_tensor_value_info(head.features, TensorProto.FLOAT, ["batch", head.width])
    scores = helper.make_tensor_value_info(model.graph.output[0].name, TensorProto.FLOAT, ["batch", end - first])
    return like(model, list(head.nodes), [features], [scores], weights)


def like(model: ModelProto, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> ModelProto:
    """A graph of other nodes, for the operators that the model's are of."""
    from onnx import helper

    graph = helper.make_graph(nodes, model.graph.name, inputs, outputs, weights)
    made: ModelProto = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version, functions=list(model.functions)
    )
    return made


def _value(model: ModelProto, name: str) -> np.ndarray:
    """What a name stands for that depends on no input, such as a weight that the model normalizes."""
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    weights = {value.name: value for value in model.graph.initializer}
    if name in weights:
        return np.asarray(numpy_helper.to_array(weights[name]))
    nodes = needed(model, [name])
    read = [weights[given] for given in {given for node in nodes for given in reads(node)} & weights.keys()]
    constant = like(model, nodes, [], [helper.make_empty_tensor_value_info(name)], read)
    return np.asarray(ReferenceEvaluator(constant).run(None, {})[0])


def needed(model: ModelProto, names: Iterable[str]) -> list[NodeProto]:
    """The nodes that these values come of, in order."""
    wanted = set(names)
    nodes: list[NodeProto] = []
    for node in reversed(model.graph.node):
        if not wanted.isdisjoint(node.output):
            nodes.insert(0, node)
            wanted.update(reads(node))
    return nodes


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node takes, those within the bodies of its branches and loops included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from reads(inner)
            yield from (output.name for output in graph.output)
