"""Channels last: convolution weights are stored, and images converted once, in the layout that fast convolutions compute in.

Results then stay in it from layer to layer, because pointwise operators and convolutions keep the layout of their inputs. It is
for backends that run torch's own kernels; the others choose a layout for themselves.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..base.passes import Pass
from ..capture.rewrite import ProgramEditor

_aten = torch.ops.aten
_CONVOLUTIONS = (_aten.conv2d.default, _aten.conv2d.padding)


def channels_last(program: ExportedProgram) -> ExportedProgram:
    """The program with its 2d convolutions in channels last; the same program when it has none with stored weights.

    So is one that names strides outright, which this would break.
    """
    editor = ProgramEditor(program)
    nodes = list(editor.graph.nodes)
    convolutions = [node for node in nodes if node.target in _CONVOLUTIONS and editor.tensor(node.args[1]) is not None]
    if not convolutions or any("strided" in str(node.target) for node in nodes if node.op == "call_function"):
        return program
    stored: dict[Node, Node] = {}
    for node in convolutions:
        weight = node.args[1]
        assert isinstance(weight, Node)
        if weight not in stored:
            value = editor.tensor(weight)
            assert value is not None
            name = f"{weight.name.removeprefix('p_')}_channels_last"
            stored[weight] = editor.add_parameter(name, value.contiguous(memory_format=torch.channels_last))
        node.args = (node.args[0], stored[weight], *node.args[2:])
    inputs = set(program.graph_signature.user_inputs)
    for node in nodes:
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default  # a view of what was contiguous may need a copy now
        elif node.op == "placeholder" and node.name in inputs and _is_image(node):
            _convert(editor, node)
    return editor.finish()


CHANNELS_LAST = Pass("channels_last", channels_last)


def _is_image(node: Node) -> bool:
    value = node.meta["val"]
    return value.ndim == 4 and value.is_floating_point()


def _convert(editor: ProgramEditor, image: Node) -> None:
    """Convert an input, in one step with its dtype where that is all that happens to it."""
    users = list(image.users)
    first = next((node for node in users if node.target is _aten.to.dtype), None)
    others = [node for node in users if node is not first and node.target is not _aten.sym_size.int]
    if first is not None and not others:
        first.kwargs = {**first.kwargs, "memory_format": torch.channels_last}
        return
    with editor.graph.inserting_before(next(node for node in editor.graph.nodes if node.op == "call_function")):
        converted = editor.graph.call_function(_aten.to.dtype, (image, image.meta["val"].dtype))
    converted.kwargs = {"memory_format": torch.channels_last}
    converted.meta["val"] = image.meta["val"]
    image.replace_all_uses_with(converted, delete_user_cb=lambda user: user is not converted)
