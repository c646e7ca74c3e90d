"""Merge batch normalisation in evaluation mode into the convolution or linear layer before it.

With s = gamma / sqrt(running_var + eps), bn(conv(x, w) + b) = conv(x, w * s) + (b - running_mean) * s + beta
(Jacob et al. 2018, arXiv:1712.05877, section 3.2). Only where nothing else uses the layer's result. The merged weights
are new tensors, computed in float64, so a weight that two layers share stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from ..capture import CapturedGraph
from ..rewrite import ProgramEditor

_aten = torch.ops.aten
_CONVOLUTIONS = {
    _aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default,
    _aten.conv1d.padding, _aten.conv2d.padding, _aten.conv3d.padding,
}  # fmt: skip
_TRANSPOSED = {_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input}
_TRANSPOSED_GROUPS = 6  # position of `groups` in their schemas


@dataclass(frozen=True)
class FoldBatchNorm:
    """The pass."""

    name: str = "fold_batch_norm"
    order: int = 10

    def apply(self, captured: CapturedGraph) -> CapturedGraph:
        """A graph without the batch normalisations that could be merged; `captured` itself when there are none."""
        editor = ProgramEditor(captured.program)
        norms = [node for node in editor.graph.nodes if node.target is _aten.batch_norm.default]
        folded = sum([_fold(editor, node, index) for index, node in enumerate(norms)])
        return replace(captured, program=editor.finish()) if folded else captured


def _fold(editor: ProgramEditor, norm: Node, index: int) -> bool:
    layer, gamma, beta, mean, variance, training, _, eps = norm.args[:8]
    if training or not isinstance(layer, Node) or len(layer.users) != 1 or layer.kwargs:
        return False
    weight_node, bias_node = layer.args[1] if len(layer.args) > 1 else None, layer.args[2] if len(layer.args) > 2 else None
    weight, bias = editor.tensor(weight_node), editor.tensor(bias_node)
    running = editor.tensor(mean), editor.tensor(variance)
    affine = editor.tensor(gamma), editor.tensor(beta)
    given = zip((bias_node, gamma, beta), (bias, *affine), strict=True)
    if (
        weight is None
        or running[0] is None
        or running[1] is None
        or any(node is not None and value is None for node, value in given)
    ):
        return False
    assert isinstance(eps, float)
    scale = torch.rsqrt(running[1].double() + eps)
    scale = scale if affine[0] is None else scale * affine[0].double()
    scaled = _scaled(layer, weight.double(), scale)
    if scaled is None:
        return False
    shift = (0.0 if bias is None else bias.double()) - running[0].double()
    shift = shift * scale if affine[1] is None else shift * scale + affine[1].double()
    new_weight, new_bias = scaled.to(weight.dtype), shift.to(weight.dtype)
    if not (torch.isfinite(new_weight).all() and torch.isfinite(new_bias).all()):
        return False
    nodes = [
        editor.add_parameter(f"folded_{index}_{part}", value) for part, value in (("weight", new_weight), ("bias", new_bias))
    ]
    layer.args = (layer.args[0], *nodes, *layer.args[3:])
    norm.replace_all_uses_with(layer)
    editor.graph.erase_node(norm)
    return True


def _scaled(layer: Node, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor | None:
    """The weight with each output channel multiplied; None when the layer is not one that batch normalisation folds into."""
    if layer.target in _CONVOLUTIONS:
        return weight * scale.view(-1, *[1] * (weight.ndim - 1))
    if layer.target is _aten.linear.default:
        # Batch normalisation works on dimension 1, which is a linear layer's output only for [batch, features].
        return weight * scale.view(-1, 1) if layer.meta["val"].ndim == 2 else None
    if layer.target in _TRANSPOSED:
        # [in, out / groups, ...]: the output channels of one group lie in dimension 1.
        groups = layer.args[_TRANSPOSED_GROUPS] if len(layer.args) > _TRANSPOSED_GROUPS else 1
        assert isinstance(groups, int)
        grouped = weight.view(groups, weight.shape[0] // groups, *weight.shape[1:])
        return (grouped * scale.view(groups, 1, -1, *[1] * (weight.ndim - 2))).view_as(weight)
    return None


PASS = FoldBatchNorm()
