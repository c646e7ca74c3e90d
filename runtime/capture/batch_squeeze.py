"""`squeeze()` without dimensions in a graph: it leaves the batch alone, whose size is not part of the graph."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from .rewrite import ProgramEditor

_aten = torch.ops.aten


def without_batch_squeeze(program: ExportedProgram) -> ExportedProgram:
    """The program with each `squeeze()` of a batch told its dimensions, those of size one but the first: what follows, such as
    a softmax over the second dimension, was captured for several rows and fails where one row has lost its own."""
    if not any(map(_squeezes_batch, program.graph.nodes)):  # most have none, and an editor copies the graph
        return program
    editor = ProgramEditor(program)
    for node in filter(_squeezes_batch, editor.graph.nodes):
        of = node.args[0]
        node.target = _aten.squeeze.dims
        node.args = (of, [index for index, size in enumerate(of.meta["val"].shape) if isinstance(size, int) and size == 1])
    return editor.finish()


def _squeezes_batch(node: Node) -> bool:
    of = node.args[0] if node.target is _aten.squeeze.default else None
    value = of.meta.get("val") if isinstance(of, Node) else None
    return isinstance(value, torch.Tensor) and value.dim() > 0 and isinstance(value.shape[0], torch.SymInt)
