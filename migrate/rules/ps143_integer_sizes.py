"""PS143: sizes that are divided as Python 2 divided integers."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside, values_of
from ..reading.scopes import Function, dotted
from ..rewriting.rule import Context, Fix, Repair, diff

_SIZES = frozenset(["view", "reshape", "expand", "repeat"])
"""Methods of a tensor all of whose arguments are sizes."""
_LAYERS = {
    **dict.fromkeys(
        ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"],
        ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    ),
    **dict.fromkeys(
        ["MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d"], ("kernel_size", "stride", "padding")
    ),
    **dict.fromkeys(["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"], ("num_features",)),
    "Linear": ("in_features", "out_features"),
}
"""Layers of torch.nn, and those of their first parameters that are sizes."""
_SHUFFLE = diff("""\
import torch
import torch.nn as nn


class Shuffle(nn.Module):
    def __init__(self, planes, groups, size=3):
        super().__init__()
        self.groups = groups
-        middle = planes / 4  # of a bottleneck
-        self.conv = nn.Conv2d(planes, middle, size, padding=(size - 1) / 2, bias=False)
+        middle = planes // 4  # of a bottleneck
+        self.conv = nn.Conv2d(planes, middle, size, padding=(size - 1) // 2, bias=False)
        self.norm = nn.BatchNorm2d(middle)

    def forward(self, x):
        n, c, h, w = self.norm(self.conv(x)).size()
-        return x.view(n, self.groups, c/self.groups, h, w)
+        return x.view(n, self.groups, c//self.groups, h, w)
""")
_VALID = """\
import numpy as np
import torch
import torch.nn as nn


def block(planes, ratio, size):
    wide = planes / ratio
    wide = int(wide)
    keep = planes / 4
    layers = nn.Sequential(nn.Conv2d(planes, wide, int(size / 2)), nn.Linear(wide, planes // 2), nn.Dropout(1 / 4))
    return layers, nn.BatchNorm2d(planes, 1 / 1000), keep


def halves(x, image):
    share = len(x) / 2
    if share.is_integer():
        x = x.view(share, -1)
    return x.view(-1, int(x.shape[1] / 2)), x.reshape(len(x), -1) / 2, np.reshape(image / 255, -1), torch.reshape(x / 2, (-1,))
"""


class IntegerSizes(Repair):
    """What it does: divides sizes as integers: those of `view` and `reshape`, and the channels and paddings of layers.

    Why: `/` gives a float since Python 3, and torch takes none for a size, so the line ends with a TypeError.

    Example: `x.view(n, groups, c / groups, h, w)` becomes `x.view(n, groups, c // groups, h, w)`.

    Fix safety: safe; what is changed could not have worked. A name is followed to its only assignment in the same function,
    where it is only handed on.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_SHUFFLE,)

    def check(self, context: Context) -> Iterator[Fix]:
        divided: dict[ast.BinOp, None] = {}
        for call in context.module.of_kind(ast.Call):
            for size in _sizes(context, call):
                divided |= dict.fromkeys(_quotients(context, call, size))
        for quotient in divided:
            message = "a size that is divided is a float since Python 3, which torch takes for none; write //"
            yield self.fix(context, quotient, message, _edits(context, quotient), severity="error")


def _sizes(context: Context, call: ast.Call) -> list[ast.expr]:
    """The arguments of a call that are sizes."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SIZES:
        return call.args if _is_tensors(context, call.func) else []
    package, _, layer = (context.module.expand(call.func) or "").rpartition(".")
    names = _LAYERS.get(layer, ()) if package == "torch.nn" else ()
    given = [item for item in call.args[: len(names)] if not isinstance(item, ast.Starred)]
    return given + [item.value for item in call.keywords if item.arg in names]


def _is_tensors(context: Context, method: ast.Attribute) -> bool:
    """Whether a method is a tensor's: no function of a library, which takes the tensor first, nor one of the repository."""
    owner = (dotted(method.value) or "").partition(".")[0]
    if owner in context.module.imports or dotted(method.value) == "self":
        return False
    return method.attr not in context.index.repository.function_names


def _quotients(context: Context, call: ast.Call, size: ast.expr) -> Iterator[ast.BinOp]:
    """The divisions in a size, or in what its name was given."""
    if isinstance(size, ast.Name):
        given = _only_value(context, context.module.function_of(call), size.id)
        if given is None:
            return
        size = given
    waiting = [size]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.BinOp):
            waiting += [part.left, part.right]
            if isinstance(part.op, ast.Div):
                yield part


def _only_value(context: Context, function: Function | None, name: str) -> ast.expr | None:
    """What a name is given where that is once, in a function in which it is only handed on."""
    named = [item for item in inside(function, ast.Name) if item.id == name]
    stores = [item for item in named if isinstance(item.ctx, ast.Store)]
    parents = [context.module.parents[item] for item in named if isinstance(item.ctx, ast.Load)]
    values = values_of(function, name)
    if len(stores) != 1 or len(values) != 1 or not all(isinstance(item, ast.Call | ast.keyword) for item in parents):
        return None
    return values[0]


def _edits(context: Context, quotient: ast.BinOp) -> list[Edit]:
    """The edit of the sign alone, where it is plain to see between the two."""
    sign = context.positions.sign_between(quotient.left, quotient.right, "/")
    return [Edit(sign, sign + 1, "//")] if sign is not None else []
