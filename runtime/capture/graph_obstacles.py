"""Obstacles that an exported program shows: state, random numbers, and outputs whose shape is not [batch, fixed...]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from ...errors import Obstacle
from . import source_locations
from .obstacles import value_needed, writes

_RANDOM = "random numbers are drawn in evaluation mode; give F.dropout training=self.training, and make layers in __init__ only"
_SIGMOIDS = frozenset({"sigmoid", "hardsigmoid", "special_expit"})
_MOVES = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "t"),
        *("slice", "select", "narrow", "cat", "concat", "stack", "clone", "contiguous", "detach", "alias", "expand"),
        *("to", "_to_copy", "float", "type_as", "lift_fresh_copy"),
    }
)
_LONGEST_END = 12  # operations from a sigmoid to an output
_LASTING = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def in_program(program: ExportedProgram, names: Sequence[str]) -> list[Obstacle]:
    """What stands in the graph itself; `names` are those of its outputs."""
    found = []
    nodes = {node.name: node for node in program.graph.nodes}
    lasting = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind in _LASTING}
    for node_name, buffer in program.graph_signature.buffers_to_mutate.items():
        found.append(writes(_public(buffer), *source_locations.of_node(nodes.get(node_name))))
    for node, base in written(program.graph):
        if base.name in lasting:
            found.append(writes(_public(lasting[base.name]), *source_locations.of_node(node)))
    random = (node for node in nodes.values() if node.users and _is_random(node))
    found += [Obstacle("PG109", _RANDOM, *source_locations.of_node(node)) for node in random]
    batches = {str(node.meta["val"].shape[0]) for node in nodes.values() if node.name in program.graph_signature.user_inputs}
    for node_name, name in zip(program.graph_signature.user_outputs, names, strict=True):
        value, place = nodes[node_name].meta["val"], source_locations.of_node(nodes[node_name])
        if any(not isinstance(size, int) for size in value.shape[1:]):
            message = (
                f"the shape of output {name}, {tuple(value.shape)}, depends on values or the batch; give it fixed dimensions"
            )
            found.append(Obstacle("PG105", message, *place))
        elif str(value.shape[0]) not in batches:
            code = "PG104" if isinstance(value.shape[0], int) else "PG105"
            message = (
                f"the first dimension of output {name} is {value.shape[0]}, not the batch; return a row per row of the input"
            )
            found.append(Obstacle(code, message, *place))
    return found


def written_inputs(program: ExportedProgram) -> frozenset[int]:
    """The positions of the inputs that the graph computes in place of, as `nn.ReLU(inplace=True)` at the beginning does."""
    order = {name: index for index, name in enumerate(program.graph_signature.user_inputs)}
    mutated = getattr(program.graph_signature, "user_inputs_to_mutate", {}).values()
    return frozenset(order[name] for name in (*mutated, *(base.name for _, base in written(program.graph))) if name in order)


def ended_by_sigmoid(program: ExportedProgram) -> list[int]:
    """Which outputs are what a sigmoid gives, moved about at most: reshaped, cut, joined with others of its kind, converted."""
    nodes = {node.name: node for node in program.graph.nodes}
    outputs = program.graph_signature.user_outputs
    return [index for index, name in enumerate(outputs) if _is_sigmoid(nodes.get(str(name)), _LONGEST_END)]


def _is_sigmoid(node: torch.fx.Node | None, steps: int) -> bool:
    if node is None or node.op != "call_function" or not steps:
        return False
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "").rstrip("_")
    if name in _SIGMOIDS:
        return True
    return name in _MOVES and all(_is_sigmoid(source, steps - 1) for source in node.all_input_nodes)


def values_taken(program: ExportedProgram) -> list[Obstacle]:
    """Every line whose `.item()` became part of the graph."""
    taken = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
    found = [source_locations.of_node(node) for node in program.graph.nodes if node.target in taken]
    return [value_needed(*place) for place in dict.fromkeys(found) if place[0]]


def written(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, torch.fx.Node]]:
    """Each operation that computes in place, and the node whose memory it writes to, itself, through views or in a block."""
    found = [
        (node, memory_of(value))
        for node in graph.nodes
        for argument, value in _arguments(node)
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.fx.Node)
    ]
    return [*found, *((node, memory_of(value)) for node in graph.nodes for value in _written_inside(node))]


def _written_inside(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """What the graphs of a block or of its branches (an autocast, torch.cond) write to of what they are given."""
    places = [place for place, item in enumerate(node.args) if isinstance(item, torch.fx.Node) and item.op == "get_attr"]
    if node.op != "call_function" or not places:
        return
    given = pytree.tree_leaves(node.args[places[-1] + 1 :])
    for place in places:
        inner = getattr(node.graph.owning_module, str(node.args[place].target), None)  # type: ignore[union-attr]
        if isinstance(inner, torch.fx.GraphModule):
            taken = [item for item in inner.graph.nodes if item.op == "placeholder"]
            bases = {base for _, base in written(inner.graph)}
            pairs = zip(taken, given, strict=False)
            yield from (value for item, value in pairs if item in bases and isinstance(value, torch.fx.Node))


def writes_to_its_own(program: ExportedProgram) -> str | None:
    """The first operation that writes to an input or to a stored tensor, of which a graph has none: the next call would find
    what this one left."""
    found = ((node, base) for node, base in written(program.graph) if base.op in ("placeholder", "get_attr"))
    return next((f"{node.target} writes to {base.name}, which outlives the call" for node, base in found), None)


def memory_of(node: torch.fx.Node) -> torch.fx.Node:
    """Whose memory a node's value is: the node that a chain of views and operations in place began with."""
    while True:
        shared = [
            value
            for argument, value in _arguments(node)
            if argument.alias_info is not None and isinstance(value, torch.fx.Node) and _returns_alias(node)
        ]
        if not shared:
            return node
        node = shared[0]


def _returns_alias(node: torch.fx.Node) -> bool:
    return any(item.alias_info is not None for item in node.target._schema.returns)


def _arguments(node: torch.fx.Node) -> list[tuple[torch.Argument, object]]:
    """The arguments of a call as its schema declares them, each with what is passed."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None:
        return []
    named = [(argument, node.kwargs[argument.name]) for argument in schema.arguments if argument.name in node.kwargs]
    return [*zip(schema.arguments, node.args, strict=False), *named]


def _is_random(node: torch.fx.Node) -> bool:
    """Whether a call draws random numbers. Attention and recurrent layers may, but not with dropout off."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = {argument.name: argument.default_value for argument in schema.arguments}
    given |= {argument.name: value for argument, value in _arguments(node)}
    switched_off = any(given.get(name) is False for name in ("train", "training"))
    never_drops = any(given.get(name) == 0 for name in ("p", "dropout", "dropout_p"))
    return not (switched_off or never_drops)


def _public(name: str) -> str:
    return name.removeprefix("module.")
