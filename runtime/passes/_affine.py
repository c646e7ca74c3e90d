"""Layers that are affine in their input, and the factors and shifts per channel that their weights can take over.

For y = W x + b: s y + t is the layer with s W and s b + t, and W (s x + t) + b the one with W s and b + W t, where s and t
have an element per output channel, or per input channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from ..capture.rewrite import ProgramEditor

_aten = torch.ops.aten
_CONVOLUTIONS = {
    _aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default,
    _aten.conv1d.padding, _aten.conv2d.padding, _aten.conv3d.padding,
}  # fmt: skip
_TRANSPOSED = {_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input}
_PADDING = 4  # positions in the schemas
_GROUPS = 6


@dataclass(frozen=True)
class AffineLayer:
    """A convolution, transposed convolution or linear layer with stored weights, [out, in / groups, ...] or, transposed,
    [in, out / groups, ...]. Channels are the last dimension of what a linear layer reads and gives, else dimension 1."""

    node: Node
    weight: torch.Tensor
    bias: torch.Tensor | None

    @classmethod
    def of(cls, editor: ProgramEditor, node: object) -> AffineLayer | None:
        """The layer that a node is; None when it is another operator or its weights are computed."""
        targets = {*_CONVOLUTIONS, *_TRANSPOSED, _aten.linear.default}
        if not isinstance(node, Node) or node.target not in targets or node.kwargs or len(node.args) < 2:
            return None
        given = node.args[2] if len(node.args) > 2 else None
        weight, bias = editor.tensor(node.args[1]), editor.tensor(given)
        if weight is None or not weight.is_floating_point() or (given is not None and bias is None):
            return None
        if node.target is not _aten.linear.default and node.meta["val"].ndim != weight.ndim:
            return None  # without a batch dimension
        return cls(node, weight, bias)

    @property
    def channel(self) -> int:
        """The dimension of the channels in what it gives; that of its input counts from the same end."""
        return self.node.meta["val"].ndim - 1 if self.node.target is _aten.linear.default else 1

    @property
    def outputs(self) -> int:
        """How many output channels."""
        return self.weight.shape[1] * self._groups if self._is_transposed else self.weight.shape[0]

    @property
    def inputs(self) -> int:
        """How many input channels."""
        return self.weight.shape[0] if self._is_transposed else self.weight.shape[1] * self._groups

    def take_after(self, editor: ProgramEditor, name: str, scale: torch.Tensor, shift: torch.Tensor) -> bool:
        """Do what multiplies its result by scale [out] and adds shift [out], in float64; False when weights would overflow."""
        bias = shift if self.bias is None else self.bias.double() * scale + shift
        keeps_none = self.bias is None and not shift.any()
        return self._store(editor, name, self._by_output(scale), None if keeps_none else bias)

    def take_before(self, editor: ProgramEditor, name: str, scale: torch.Tensor, shift: torch.Tensor) -> bool:
        """Do what multiplies its input by scale [in] and adds shift [in]. A shift cannot be taken over with padding, which is
        zero and not shifted, nor by a transposed convolution, whose results at the border are made of fewer inputs."""
        scaled, bias = self._by_input(scale), self.bias
        if shift.any():
            if self._is_transposed or self._is_padded:
                return False
            offset = self._by_input(shift).flatten(1).sum(1)
            bias = offset if bias is None else bias.double() + offset
        return self._store(editor, name, scaled, bias)

    def _store(self, editor: ProgramEditor, name: str, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
        weight = weight.to(self.weight.dtype)
        bias = None if bias is None else bias.to(self.weight.dtype)
        if not (torch.isfinite(weight).all() and (bias is None or torch.isfinite(bias).all())):
            return False
        arguments = [editor.add_parameter(f"{name}_weight", weight)]
        arguments += [] if bias is None else [editor.add_parameter(f"{name}_bias", bias)]
        rest = self.node.args[3:]
        self.node.args = (self.node.args[0], *arguments, *([None] if bias is None and rest else []), *rest)
        return True

    def _by_output(self, factor: torch.Tensor) -> torch.Tensor:
        weight = self.weight.double()
        if not self._is_transposed:
            return weight * factor.view(-1, *[1] * (weight.ndim - 1))
        grouped = weight.view(self._groups, -1, *weight.shape[1:])
        return (grouped * factor.view(self._groups, 1, -1, *[1] * (weight.ndim - 2))).view_as(weight)

    def _by_input(self, factor: torch.Tensor) -> torch.Tensor:
        weight = self.weight.double()
        if self._is_transposed:
            return weight * factor.view(-1, *[1] * (weight.ndim - 1))
        grouped = weight.reshape(self._groups, -1, *weight.shape[1:])
        return (grouped * factor.view(self._groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)

    @property
    def _is_transposed(self) -> bool:
        return self.node.target in _TRANSPOSED

    @property
    def _groups(self) -> int:
        groups = self.node.args[_GROUPS] if len(self.node.args) > _GROUPS else 1
        assert isinstance(groups, int)
        return 1 if self.node.target is _aten.linear.default else groups

    @property
    def _is_padded(self) -> bool:
        if self.node.target is _aten.linear.default or len(self.node.args) <= _PADDING:
            return False
        padding = self.node.args[_PADDING]
        return padding != "valid" if isinstance(padding, str) else any(padding)  # type: ignore[arg-type]


def batch_norm_as_affine(editor: ProgramEditor, norm: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    """scale and shift per channel, in float64, of a batch normalization in evaluation mode; None for any other node.

    With s = gamma / sqrt(running_var + eps), it computes s x + (beta - running_mean s).
    """
    if norm.target is not _aten.batch_norm.default or norm.args[5]:
        return None
    gamma, beta, mean, variance = (editor.tensor(item) for item in norm.args[1:5])
    eps = norm.args[7]
    unknown = [value is None for node, value in zip(norm.args[1:3], (gamma, beta), strict=True) if node is not None]
    if mean is None or variance is None or any(unknown):
        return None
    assert isinstance(eps, float)
    scale = torch.rsqrt(variance.double() + eps)
    scale = scale if gamma is None else scale * gamma.double()
    shift = -mean.double() * scale
    return scale, shift if beta is None else shift + beta.double()
