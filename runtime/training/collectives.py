"""Collectives of a captured step that can go together do: one for a bucket of parameters or gradients, not one for each.

A gather of a parameter needs nothing that the step computes, so it joins the first one of its bucket. A sum of a gradient
waits, with what only reads or reshapes it, for the first operation that computes with a sum, or until its bucket is full.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..parallel.buckets import BUCKET_BYTES

_aten, _c10d = torch.ops.aten, torch.ops._c10d_functional
_GATHER, _SUM, _SCATTER = (
    _c10d.all_gather_into_tensor.default,
    _c10d.all_reduce.default,
    _c10d.reduce_scatter_tensor.default,
)
_WAIT = _c10d.wait_tensor.default
# What may run later, or a gather's earlier, at no cost: nothing is computed, or next to nothing.
_LIGHT = {
    operator.getitem, _WAIT, _aten.add.Tensor, _aten.add_.Tensor, _aten.alias.default, _aten.as_strided.default,
    _aten.cat.default, _aten.clone.default, _aten.constant_pad_nd.default, _aten.detach.default, _aten.div.Scalar,
    _aten.div.Tensor, _aten.mul.Scalar, _aten.mul.Tensor, _aten.permute.default, _aten.slice.Tensor, _aten.split.Tensor,
    _aten.split_with_sizes.default, _aten.squeeze.dim, _aten.t.default, _aten.transpose.int, _aten.unsqueeze.default,
    _aten.view.default,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The collectives that go together, in the order in which they do. `late` are the others that move with them, in the order
    in which they run, and the operation that they stand before; a bucket of gathers moves what it reads to its first one."""

    gathers: tuple[tuple[Node, ...], ...]
    sums: tuple[tuple[Node, ...], ...]
    late: tuple[tuple[tuple[Node, ...], Node], ...]

    def __bool__(self) -> bool:
        return any(len(bucket) > 1 for bucket in (*self.gathers, *self.sums))

    def described(self) -> list[Any]:
        """What must be the same on every rank, or they would wait for each other for ever."""
        return [
            [(str(node.target), node.args[1:], tuple(_value(node).shape), str(_value(node).dtype)) for node in bucket]
            for bucket in (*self.gathers, *self.sums)
        ]


def plan_buckets(program: GraphModule, limit: int = BUCKET_BYTES) -> Plan:
    """Which collectives of the program go together, no more than `limit` bytes of whole values in each bucket."""
    nodes = list(program.graph.nodes)
    sums, late = _late(nodes, limit)
    return Plan(tuple(_early(nodes, limit)), tuple(sums), tuple(late))


def bucket_collectives(program: GraphModule, plan: Plan) -> None:
    """Let them go together, in place."""
    graph = program.graph
    for bucket in plan.gathers:
        if len(bucket) > 1:
            known = {node: at for at, node in enumerate(graph.nodes)}
            moved = {node for each in bucket[1:] for node in _chain(each) or () if known[node] > known[bucket[0]]}
            for node in sorted(moved, key=known.__getitem__):
                bucket[0].prepend(node)
            _together(graph, bucket, bucket[0])
    for nodes, before in plan.late:
        buckets = [bucket for bucket in plan.sums if len(bucket) > 1 and bucket[0] in nodes]
        gone = {each for bucket in buckets for node in bucket for each in (node, *node.users)}
        for bucket in buckets:
            _together(graph, bucket, before)
        for node in nodes:
            if node not in gone:
                before.prepend(node)
    graph.lint()
    program.recompile()


def _early(nodes: Sequence[Node], limit: int) -> list[tuple[Node, ...]]:
    found: list[list[Node]] = []
    last: dict[Any, int] = {}  # the open bucket of each kind
    written: dict[Node, int] = {}  # where each tensor was last written
    begun: list[int] = []
    for at, node in enumerate(nodes):
        written.update(dict.fromkeys(_writes(node), at))
        chain = _chain(node) if node.target is _GATHER and _alone(node) else None
        if chain is None:
            continue
        key, read = (*node.args[1:], _value(node).dtype), {source for each in chain for source in each.all_input_nodes}
        number = last.get(key)
        full = number is not None and sum(map(_bytes, found[number])) + _bytes(node) > limit
        if number is None or full or any(written.get(source, -1) > begun[number] for source in read):
            number = last[key] = len(found)
            found.append([])
            begun.append(at)
        found[number].append(node)
    return [tuple(bucket) for bucket in found]


def _chain(node: Node) -> list[Node] | None:
    """The operations between the program's inputs and a gather; None where one of them computes."""
    found: list[Node] = []
    left = list(node.all_input_nodes)
    while left:
        each = left.pop()
        if each.op == "placeholder" or each in found:
            continue
        if each.target not in _LIGHT or each.target is _WAIT or _writes(each):
            return None
        found.append(each)
        left += each.all_input_nodes
    return [*found, node]


def _late(nodes: Sequence[Node], limit: int) -> tuple[list[tuple[Node, ...]], list[tuple[tuple[Node, ...], Node]]]:
    sums: list[tuple[Node, ...]] = []
    late: list[tuple[tuple[Node, ...], Node]] = []
    waiting: dict[Node, None] = {}
    touched: set[Node] = set()  # what the waiting operations give, or write
    read: set[Node] = set()  # and read
    size = 0
    for node in nodes:
        inputs = node.all_input_nodes
        uses = any(_source(value) in touched or value in touched for value in inputs)
        writes = _writes(node)
        joins = node.target in (_SUM, _SCATTER) and _alone(node) and not uses
        follows = uses and node.target in _LIGHT
        if waiting and (
            node.op == "output"
            or (uses and not follows)
            or any(value in read for value in writes)
            or (joins and size + _bytes(node) > limit)
        ):
            sums += _by_kind(waiting)
            late.append((tuple(waiting), node))
            waiting, touched, read, size = {}, set(), set(), 0
            joins = joins or (node.target in (_SUM, _SCATTER) and _alone(node))
            follows = False
        if joins or follows:
            waiting[node] = None
            touched |= {node, *writes}
            read |= {_source(value) for value in inputs}
            size += _bytes(node) if joins else 0
    return sums, late


def _by_kind(waiting: dict[Node, None]) -> list[tuple[Node, ...]]:
    found: dict[Any, list[Node]] = {}
    for node in waiting:
        if node.target in (_SUM, _SCATTER):
            found.setdefault((node.target, *node.args[1:], _value(node).dtype), []).append(node)
    return [tuple(bucket) for bucket in found.values()]


def _together(graph: Graph, bucket: Sequence[Node], before: Node) -> None:
    """One collective for all of these, before that operation; what waits for each of them reads its piece."""
    kind = bucket[0].target
    ranks = 1 if kind is _SUM else bucket[0].args[-2]
    with graph.inserting_before(before):
        rows = ranks if kind is _SCATTER else 1
        parts = [
            _call(graph, _aten.reshape.default, _permuted(graph, node.args[0], _order(node)), [rows, -1]) for node in bucket
        ]
        flat = _call(graph, _aten.view.default, _call(graph, _aten.cat.default, parts, 1), [-1])
        whole = _call(graph, _WAIT, _call(graph, kind, flat, *bucket[0].args[1:]))
        rows = ranks if kind is _GATHER else 1
        pieces = _call(
            graph,
            _aten.split_with_sizes.default,
            _call(graph, _aten.view.default, whole, [rows, -1]),
            [_value(node).numel() // rows for node in bucket],
            1,
        )
        for at, node in enumerate(bucket):
            order, value = _order(node), _value(node)
            piece = _call(graph, operator.getitem, pieces, at)
            if rows > 1:  # a part of each row, which views of the whole value could not take for one without gaps
                piece = _call(graph, _aten.contiguous.default, piece)
            shaped = _call(graph, _aten.reshape.default, piece, [value.shape[dim] for dim in order])
            own = _permuted(graph, shaped, [order.index(dim) for dim in range(len(order))])
            for wait in node.users:
                wait.replace_all_uses_with(own)
    for node in bucket:
        for wait in list(node.users):
            graph.erase_node(wait)
        graph.erase_node(node)


def _call(graph: Graph, target: Any, *args: Any) -> Node:
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.map_arg(args, lambda each: each.meta["val"]))
    return node


def _permuted(graph: Graph, node: Node, order: list[int]) -> Node:
    return node if order == sorted(order) else _call(graph, _aten.permute.default, node, order)


def _alone(node: Node) -> bool:
    """Whether it can go with others: a sum or a gather, of a value without gaps, that nothing reads before it is there."""
    order = _order(node)
    # What is cut or gathered is so by its first dimension.
    able = node.args[1] == "sum" if node.target is _SUM else order[:1] in ([], [0])
    dense = _value(node).permute(order).is_contiguous()
    return able and dense and all(user.target is _WAIT for user in node.users)


def _order(node: Node) -> list[int]:
    """The dimensions as they lie in memory."""
    value = _value(node)
    strides = value.stride()
    return sorted(range(value.ndim), key=lambda dim: (-strides[dim], dim))


def _value(node: Node) -> torch.Tensor:
    value = node.meta["val"]
    assert isinstance(value, torch.Tensor)
    return value


def _bytes(node: Node) -> int:
    """Of the whole value, before it is cut or after it is gathered."""
    values = [_value(each) for each in (node, node.args[0]) if isinstance(each, Node)]
    return max(value.numel() * value.element_size() for value in values)


def _source(node: Node) -> Node:
    """The value whose memory this one may share."""
    while node.op == "call_function" and node.all_input_nodes:
        schema = getattr(node.target, "_schema", None)
        views = node.target is operator.getitem or (
            schema is not None and any(value.alias_info is not None for value in schema.returns)
        )
        if not views:
            break
        node = node.all_input_nodes[0]
    return node


def _writes(node: Node) -> list[Node]:
    """The values whose memory an operation writes to."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return []
    written = []
    for at, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            written += [
                _source(value) for value in (given if isinstance(given, list | tuple) else [given]) if isinstance(value, Node)
            ]
    return written
