"""PS143: sizes that are divided as Python 2 divided integers."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside
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
_DEEPEST = 2
"""Functions through which a size is followed."""
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
_BLOCKS = diff("""\
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
-        n = (depth - 2) / 6
+        n = (depth - 2) // 6
        self.layer1 = self._make_layer(16, n)
        self.layer2 = self._make_layer(32, blocks=n)
        for module in self.modules():
            n = len(list(module.parameters()))
            module.scale = (2 / n) ** 0.5

    def _make_layer(self, planes, blocks):
        layers = [nn.Conv2d(3, planes, 3)]
        for _ in range(1, blocks):
            layers.append(nn.Conv2d(planes, planes, 3))
        return nn.Sequential(*layers)


def half(layers):
-    return [layers[i] for i in range(len(layers) / 2)]
+    return [layers[i] for i in range(len(layers) // 2)]
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


def repeated(layer, times):
    times = int(times)
    return [layer for _ in range(times)]


class Parts:
    @staticmethod
    def rows(share, count):
        return [share for _ in range(count)]

    def own(self, share):
        return self.rows(share / 2, 3)

    def parts(self, share):
        def repeated(layer, share):
            return [layer for _ in range(share)]

        return repeated

    def shares(self, share):
        return shared(share / 2)


def shared(share):
    return share


def outer(share):
    def shared(share):
        return range(share)

    return shared


def all_of(layer, share):
    return repeated(layer, share / 2), np.arange(share / 2)
"""


class IntegerSizes(Repair):
    """What it does: divides sizes as integers: those of `view` and `reshape`, the channels and paddings of layers, and what
    `range` counts to.

    Why: `/` gives a float since Python 3, which is taken for no size, so the line ends with a TypeError.

    Example: `x.view(n, groups, c / groups, h, w)` becomes `x.view(n, groups, c // groups, h, w)`.

    Fix safety: safe; what is changed could not have worked. A name is followed to what it was given last before, and a
    parameter to what its function is called with.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_SHUFFLE, _BLOCKS)

    def check(self, context: Context) -> Iterator[Fix]:
        divided: dict[ast.BinOp, None] = {}
        for call in context.module.of_kind(ast.Call):
            for size in _sizes(context, call):
                divided |= dict.fromkeys(_quotients(context, call, size))
        for quotient in divided:
            message = "a size that is divided is a float since Python 3, which is taken for none; write //"
            yield self.fix(context, quotient, message, _edits(context, quotient), severity="error")


def _sizes(context: Context, call: ast.Call) -> list[ast.expr]:
    """The arguments of a call that are sizes."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SIZES:
        return call.args if _is_tensors(context, call.func) else []
    if isinstance(call.func, ast.Name) and call.func.id == "range" and context.module.expand(call.func) in (None, "range"):
        return call.args
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


def _quotients(context: Context, call: ast.Call, size: ast.expr, depth: int = 0) -> Iterator[ast.BinOp]:
    """The divisions in a size, in what its name was given, or in what a function is called with for it."""
    waiting = [size]
    if isinstance(size, ast.Name):
        function = context.module.function_of(call)
        named = [item for item in inside(function, ast.Name) if item.id == size.id]
        stores = [item for item in named if isinstance(item.ctx, ast.Store)]
        if function is not None and not stores and depth < _DEEPEST:
            for other, given in _handed(context, function, size.id):
                yield from _quotients(context, other, given, depth + 1)
            return
        value = _value_before(function, size.id, stores, call)
        reads = [context.module.parents[item] for item in named if value is not None and _reads(item, value, stores)]
        if value is None or not all(isinstance(item, ast.Call | ast.keyword) for item in reads):
            return  # nobody knows it, or it is used as a number, too
        waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.BinOp):
            waiting += [part.left, part.right]
            if isinstance(part.op, ast.Div):
                yield part


def _value_before(function: Function | None, name: str, stores: list[ast.Name], call: ast.Call) -> ast.expr | None:
    """What a name is given last before a call, always and by itself; None where a branch or a loop may give it something."""
    last = max((item.lineno for item in stores if item.lineno < call.lineno), default=None)
    for statement in function.body if function is not None else ():
        if isinstance(statement, ast.Assign) and statement.lineno == last and name in map(dotted, statement.targets):
            return statement.value
    return None


def _reads(name: ast.Name, given: ast.expr, stores: list[ast.Name]) -> bool:
    """Whether a name is read where it has what it was given there."""
    later = min((item.lineno for item in stores if item.lineno > given.lineno), default=name.lineno + 1)
    return isinstance(name.ctx, ast.Load) and given.lineno < name.lineno < later


def _handed(context: Context, function: Function, name: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    """What calls of a function in its file hand it for a parameter: of a method on `self` in its class, else by its name."""
    own = context.module.class_of(function)
    scope = own or context.module.tree
    if [item for item in scope.body if getattr(item, "name", "") == function.name] != [function]:
        return  # a function in a function, or one of several of that name
    bound = own is not None and "staticmethod" not in map(dotted, function.decorator_list)
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)][bound:]
    called = function.name if own is None else f"self.{function.name}"
    for call in inside(scope, ast.Call):
        if dotted(call.func) != called or any(isinstance(item, ast.Starred) for item in call.args):
            continue
        given = dict(zip(names, call.args, strict=False)) | {item.arg: item.value for item in call.keywords if item.arg}
        if name in given:
            yield call, given[name]


def _edits(context: Context, quotient: ast.BinOp) -> list[Edit]:
    """The edit of the sign alone, where it is plain to see between the two."""
    sign = context.positions.sign_between(quotient.left, quotient.right, "/")
    return [Edit(sign, sign + 1, "//")] if sign is not None else []
