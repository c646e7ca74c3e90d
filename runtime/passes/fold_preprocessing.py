"""Merge the arithmetic of preprocessing, which stands between uint8 pixels and the first convolution, into its weights.

With x the pixel, it is (x - shift) * gain per channel, after a change of the channels' order or none. gain and the order are
multiplied into the weights, which is exact with zero padding too, because zero stays zero. shift goes into the bias, but only
without padding: a zero in the padding stands for the mean color, not for a black pixel. What cannot be merged stays before the
graph, where every backend fuses it with the conversion to floats.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor
from ._affine import AffineLayer

_aten = torch.ops.aten
_STEPS = (_aten.permute.default, _aten.to.dtype, _aten.flip.default, _aten.sub.Tensor, _aten.mul.Tensor)


def fold_preprocessing(program: ExportedProgram) -> ExportedProgram:
    """The program whose first convolution reads pixels. Runs before what would take that convolution's neighbors away."""
    editor = ProgramEditor(program)
    inputs = set(program.graph_signature.user_inputs)
    images = [node for node in editor.graph.nodes if node.op == "placeholder" and node.name in inputs]
    if len(images) != 1 or images[0].meta["val"].dtype is not torch.uint8 or not _folded(editor, images[0]):
        return program
    return editor.finish()


def _folded(editor: ProgramEditor, image: Node) -> bool:
    """Whether the convolution has taken over what it can of the steps that alone read the image."""
    steps: list[Node] = []
    last = image
    while (user := _only_reader(last)) is not None and user.target in _STEPS:
        steps.append(user)
        last = user
    flips = [node for node in steps if node.target is _aten.flip.default and node.args[1] == [1]]
    targets = [node.target for node in steps]
    if targets != [*_STEPS[:2], *(node.target for node in flips), *_STEPS[3:]]:
        return False
    *_, sub, mul = steps
    shift, gain = (_per_channel(editor, node) for node in (sub, mul))
    layer = AffineLayer.of(editor, user)
    if layer is None or layer.node.target is not _aten.conv2d.default or shift is None or gain is None:
        return False
    if layer.node.args[0] is not mul or layer.inputs != layer.weight.shape[1]:  # several groups
        return False
    merged = layer.take_before(editor, "pixel", gain, -shift * gain)
    if not merged and not layer.take_before(editor, "pixel", gain, torch.zeros_like(shift)):
        return False
    mul.replace_all_uses_with(sub)
    if merged:
        sub.replace_all_uses_with(sub.args[0])
    for flip in flips:
        weight = editor.tensor(layer.node.args[1])
        assert weight is not None, "the layer has just stored it"
        rest = layer.node.args[2:]
        layer.node.args = (layer.node.args[0], editor.add_parameter("pixel_weight", weight.flip(1).contiguous()), *rest)
        if not merged:
            sub.args = (sub.args[0], editor.add_parameter("pixel_shift", shift.flip(0).view(1, -1, 1, 1).to(weight.dtype)))
        flip.replace_all_uses_with(flip.args[0])
    return True


def _only_reader(node: Node) -> Node | None:
    """Who alone reads a value; what asserts its dtype aside."""
    users = [user for user in node.users if user.target is not _aten._assert_tensor_metadata.default]
    return users[0] if len(users) == 1 else None


def _per_channel(editor: ProgramEditor, node: Node) -> torch.Tensor | None:
    """The stored operand [1, C, 1, 1] of a sum or product as [C] in float64; None for any other."""
    value = editor.tensor(node.args[1]) if not node.kwargs else None
    if value is None or value.ndim != 4 or value.numel() != value.shape[1]:
        return None
    return value.double().flatten()


PASS = Pass("fold_preprocessing", fold_preprocessing)
