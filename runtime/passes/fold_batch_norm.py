"""Merge batch normalization in evaluation mode into the convolution or linear layer before it.

With s = gamma / sqrt(running_var + eps), bn(conv(x, w) + b) = conv(x, w * s) + (b - running_mean) * s + beta
(Jacob et al. 2018, arXiv:1712.05877, section 3.2). Only where nothing else uses the layer's result. The merged weights
are new tensors, computed in float64, so a weight that two layers share stays what it was.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor
from ._affine import AffineLayer, batch_norm_as_affine

_aten = torch.ops.aten


def fold_batch_norm(program: ExportedProgram) -> ExportedProgram:
    """The program without the batch normalizations that could be merged."""
    editor = ProgramEditor(program)
    norms = [node for node in editor.graph.nodes if node.target is _aten.batch_norm.default]
    folded = sum([_fold(editor, node, index) for index, node in enumerate(norms)])
    return editor.finish() if folded else program


def _fold(editor: ProgramEditor, norm: Node, index: int) -> bool:
    layer = AffineLayer.of(editor, norm.args[0])
    affine = batch_norm_as_affine(editor, norm)
    # Batch normalization works on dimension 1, which is a linear layer's output only for [batch, features].
    if layer is None or affine is None or len(layer.node.users) != 1 or layer.channel != 1:
        return False
    if not layer.take_after(editor, f"folded_{index}", *affine):
        return False
    norm.replace_all_uses_with(layer.node)
    editor.graph.erase_node(norm)
    return True


PASS = Pass("fold_batch_norm", fold_batch_norm)
