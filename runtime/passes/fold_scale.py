"""Merge what scales or shifts channels by constants into the convolution or linear layer before it, or else after it.

A layer scale (ConvNeXt, CaiT: gamma * x), an affine layer (ResMLP), division by a standard deviation, and batch normalization
that no layer precedes directly: each is s x + t per channel, which the weights of a neighbor can take over exactly (`affine`).
Between the two may stand what only moves elements. A layer after it cannot take over a shift if it pads with zeros.
Weights are new tensors, computed in float64; whatever else reads a value in between keeps everything as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor
from ._affine import AffineLayer, batch_norm_as_affine

_aten = torch.ops.aten
_WRITING = {_aten.mul_.Tensor, _aten.div_.Tensor, _aten.add_.Tensor, _aten.sub_.Tensor}
_SCALING = {
    _aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.div.Scalar, _aten.add.Tensor, _aten.add.Scalar,
    _aten.sub.Tensor, _aten.sub.Scalar, _aten.rsub.Tensor, _aten.rsub.Scalar, _aten.neg.default, _aten.addcmul.default,
    _aten.batch_norm.default, *_WRITING,
}  # fmt: skip
_KEEPING = {_aten.contiguous.default, _aten.clone.default, _aten.alias.default, _aten.detach.default}
_RESHAPING = {
    _aten.reshape.default, _aten.view.default, _aten.flatten.using_ints, _aten.unflatten.int,
    _aten.squeeze.dim, _aten.squeeze.dims, _aten.unsqueeze.default,
}  # fmt: skip

Affine = tuple[torch.Tensor, torch.Tensor]


def fold_scale(program: ExportedProgram) -> ExportedProgram:
    """The program without the scales that could be merged."""
    editor = ProgramEditor(program)
    count = 0
    while folded := next((node for node in editor.graph.nodes if _fold(editor, node, f"scaled_{count}")), None):
        (source,) = (item for item in folded.all_input_nodes if editor.tensor(_origin(item)) is None)
        folded.replace_all_uses_with(source)
        editor.graph.erase_node(folded)
        count += 1
    return editor.finish() if count else program


def _fold(editor: ProgramEditor, node: Node, name: str) -> bool:
    """Whether a layer has taken over what the node computes; the node itself is still there."""
    if node.target not in _SCALING:
        return False
    sources = [item for item in node.all_input_nodes if editor.tensor(_origin(item)) is None]
    if len(sources) != 1 or sum(item is sources[0] for item in node.args) != 1:
        return False
    (source,) = sources
    before, after = source.meta["val"], node.meta["val"]
    if not isinstance(before, torch.Tensor) or before.shape != after.shape or before.dtype != after.dtype:
        return False
    if node.target in _WRITING and node.args[0] is not source:
        return False
    layer, dim = _layer_before(editor, source)
    if layer is not None and dim is not None and layer.weight.dtype == after.dtype:
        affine = _affine(editor, node, source, dim, layer.outputs)
        if affine is not None and layer.take_after(editor, name, *affine):
            return True
    if _is_written(editor, source):
        return False  # the layer would read it later than the node did
    layer, dim = _layer_after(editor, node)
    if layer is not None and dim is not None and layer.weight.dtype == after.dtype:
        affine = _affine(editor, node, source, dim, layer.inputs)
        return affine is not None and layer.take_before(editor, name, *affine)
    return False


def _is_written(editor: ProgramEditor, source: Node) -> bool:
    """Whether anything writes into the memory of a value."""
    writers = (node for node in editor.graph.nodes if getattr(getattr(node.target, "_schema", None), "is_mutable", False))
    return any(_origin(item) is _origin(source) for node in writers for item in node.all_input_nodes)


def _layer_before(editor: ProgramEditor, node: Node) -> tuple[AffineLayer | None, int | None]:
    """The layer whose result comes here, unread by anything else, and where its channels have come to."""
    moves: list[Node] = []
    while len(node.users) == 1 and (node.target in _RESHAPING or _is_move(node)):
        moves.append(node)
        node = node.all_input_nodes[0]
    layer = AffineLayer.of(editor, node) if len(node.users) == 1 else None
    return layer, None if layer is None else _moved(layer.channel, reversed(moves))


def _layer_after(editor: ProgramEditor, node: Node) -> tuple[AffineLayer | None, int | None]:
    """The layer that alone reads what the node gives, and the dimension that becomes its input channels."""
    moves: list[Node] = []
    last = node
    while len(last.users) == 1:
        (user,) = last.users
        layer = AffineLayer.of(editor, user)
        if layer is not None and user.args[0] is last:
            rank = last.meta["val"].ndim
            target = rank - 1 if layer.node.target is _aten.linear.default else 1
            found = [dim for dim in range(node.meta["val"].ndim) if _moved(dim, moves) == target]
            return layer, found[0] if len(found) == 1 else None
        if user.target not in _RESHAPING and not _is_move(user):
            break
        moves.append(user)
        last = user
    return None, None


def _affine(editor: ProgramEditor, node: Node, source: Node, dim: int, size: int) -> Affine | None:
    """What the node computes of its source, as scale and shift [size] in float64; None when it is not constant per channel."""
    rank = source.meta["val"].ndim
    if source.meta["val"].shape[dim] != size:
        return None
    if node.target is _aten.batch_norm.default:
        return batch_norm_as_affine(editor, node) if dim == 1 and node.args[0] is source else None
    others = [_per_channel(editor, item, rank, dim, size) for item in node.args if item is not source]
    if any(item is None for item in others):
        return None
    constants = [item for item in others if item is not None]
    name, is_first = node.target._schema.name.partition("::")[2].rstrip("_"), node.args[0] is source  # type: ignore[union-attr]
    alpha = node.kwargs.get("alpha", 1)
    assert isinstance(alpha, int | float)
    one, zero = torch.ones_like(constants[0]) if constants else torch.ones(size).double(), 0.0
    scale, shift = one, one * zero
    if name == "neg":
        scale = -one
    elif name == "mul":
        scale = constants[0]
    elif name == "div" and is_first:
        scale = 1 / constants[0]
    elif name in ("add", "sub"):
        sign = alpha if name == "add" else -alpha
        scale, shift = (one, sign * constants[0]) if is_first else (sign * one, constants[0])
    elif name == "rsub":
        scale, shift = (-alpha * one, constants[0]) if is_first else (one, -alpha * constants[0])
    elif name == "addcmul" and not is_first:
        value = node.kwargs.get("value", 1)
        assert isinstance(value, int | float)
        scale, shift = value * constants[1], constants[0]
    else:
        return None
    return scale, shift


def _per_channel(editor: ProgramEditor, value: object, rank: int, dim: int, size: int) -> torch.Tensor | None:
    """A constant operand as [size] in float64; None when it varies along another dimension."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return torch.full((size,), float(value), dtype=torch.float64)
    tensor = _value(editor, value)
    if tensor is None or tensor.is_complex() or tensor.dtype is torch.bool or tensor.ndim > rank:
        return None
    shape = (1,) * (rank - tensor.ndim) + tuple(tensor.shape)
    if any(length != 1 for at, length in enumerate(shape) if at != dim) or shape[dim] not in (1, size):
        return None
    return tensor.double().reshape(-1).expand(size)


def _origin(node: Node) -> Node:
    """The value that a node only shows in another shape."""
    while node.op == "call_function" and getattr(node.target, "is_view", False) and len(node.all_input_nodes) == 1:
        (node,) = node.all_input_nodes
    return node


def _value(editor: ProgramEditor, node: Any) -> torch.Tensor | None:
    """A weight or a view of one, computed; None for anything else."""
    if not isinstance(node, Node) or editor.tensor(_origin(node)) is None:
        return None
    if node.op == "placeholder":
        return editor.tensor(node)
    inner = _value(editor, node.all_input_nodes[0])
    args, kwargs = map_arg((node.args, node.kwargs), lambda item: inner)
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    return result if isinstance(result, torch.Tensor) else None


def _is_move(node: Node) -> bool:
    dropout = node.target is _aten.dropout.default and node.args[2] is False
    return dropout or node.target in _KEEPING or node.target in (_aten.permute.default, _aten.transpose.int)


def _moved(dim: int | None, moves: Any) -> int | None:
    """Where a dimension has come to after the moves; None when it is not a dimension of its own any more."""
    for node in moves:
        if dim is None:
            return None
        before, after = node.all_input_nodes[0].meta["val"].shape, node.meta["val"].shape
        if node.target is _aten.permute.default:
            dim = [item % len(before) for item in node.args[1]].index(dim)
        elif node.target is _aten.transpose.int:
            one, other = (item % len(before) for item in node.args[1:])
            dim = {one: other, other: one}.get(dim, dim)
        elif node.target in _RESHAPING:
            dim = _reshaped(dim, before, after)
    return dim


def _reshaped(dim: int, before: Sequence[Any], after: Sequence[Any]) -> int | None:
    """Elements keep their order: a dimension is the same where its size is, and as many elements lie within one step of it."""
    inner = _product(before[dim + 1 :])
    if inner is None or not isinstance(before[dim], int):
        return None
    for at, size in enumerate(after):
        if isinstance(size, int) and size == before[dim] and _product(after[at + 1 :]) == inner:
            return at
    return None


def _product(sizes: Sequence[Any]) -> int | None:
    return math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None


PASS = Pass("fold_scale", fold_scale)
