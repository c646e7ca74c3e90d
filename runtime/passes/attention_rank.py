"""Attention over [batch, heads, tokens, features], where a module has one head, or windows beside the heads.

The portable graph has attention in four dimensions only, and so have torch's fused kernels; in others they fall back to two
products with the scores between them in memory. Attention treats its leading dimensions alike, so they may be merged or added.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor

_aten = torch.ops.aten
_RANK = 4
_MASK = 3  # its position in the operator's schema


def attention_in_four(program: ExportedProgram) -> ExportedProgram:
    """The program with attention in four dimensions."""
    editor = ProgramEditor(program)
    calls = [node for node in editor.graph.nodes if node.target is _aten.scaled_dot_product_attention.default]
    changed = [_reshaped(editor, node) for node in calls]
    return editor.finish() if any(changed) else program


def _reshaped(editor: ProgramEditor, node: Node) -> bool:
    operands = node.args[:_MASK]
    shapes = [item.meta["val"].shape for item in operands if isinstance(item, Node)]
    mask = node.args[_MASK] if len(node.args) > _MASK else node.kwargs.get("attn_mask")
    if len(shapes) < _MASK or len({len(shape) for shape in shapes}) > 1 or node.kwargs.get("enable_gqa"):
        return False
    rank = len(shapes[0])
    if rank < 3 or rank == _RANK:
        return False
    if rank > _RANK and (
        any(shape[: rank - 3] != shapes[0][: rank - 3] for shape in shapes)
        or not all(isinstance(size, int) for size in shapes[0][1 : rank - 3])
        or not _merges(mask, shapes[0])
    ):
        return False
    with editor.graph.inserting_before(node):
        inputs = [_in_four(editor, item, rank) for item in operands]
        if isinstance(mask, Node) and len(mask.meta["val"].shape) > (2 if rank < _RANK else 3):
            mask = _in_four(editor, mask, rank)
        kwargs = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
        result = _call(editor, node.target, *inputs, mask, *node.args[_MASK + 1 :], **kwargs)
        if rank < _RANK:
            result = _call(editor, _aten.squeeze.dim, result, 1)
        else:
            result = _call(editor, _aten.unflatten.int, result, 0, [-1, *shapes[0][1 : rank - 3]])
    node.replace_all_uses_with(result)
    editor.graph.erase_node(node)
    return True


def _merges(mask: Any, shape: torch.Size) -> bool:
    """Whether the mask still fits when the dimensions before the heads are one: it lacks them, or has them in full."""
    if not isinstance(mask, Node):
        return True
    own = mask.meta["val"].shape
    return len(own) <= 3 or (len(own) == len(shape) and own[: len(shape) - 3] == shape[: len(shape) - 3])


def _in_four(editor: ProgramEditor, node: Any, rank: int) -> Node:
    """One head where there is no such dimension; or all that stands before the heads as the batch."""
    if rank < _RANK:
        return _call(editor, _aten.unsqueeze.default, node, 1)
    return _call(editor, _aten.flatten.using_ints, node, 0, rank - _RANK)


def _call(editor: ProgramEditor, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new call with the shape that export keeps in a node's metadata."""
    node = editor.graph.call_function(target, args, kwargs)
    values = map_arg((args, kwargs), lambda item: item.meta["val"])
    with torch.no_grad():
        node.meta["val"] = target(*values[0], **values[1])
    return node


PASS = Pass("attention_rank", attention_in_four)
