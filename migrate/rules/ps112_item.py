"""PS112: `loss.data[0]`, the number in a loss before torch 0.4."""

import ast
import re
from collections.abc import Iterator
from typing import Literal

from ..reading.edits import Edit
from ..reading.nodes import inside
from ..reading.scopes import Module, dotted, last_name
from ..rewriting.rule import Context, Fix, Repair, diff
from ..rewriting.scalars import returns_scalars

_NAMED = re.compile(r"(^|_)(loss|losses|cost|err|error|acc|accuracy|prec\d?|top\d|err_?[DG])(_|\d|$)|loss|^err", re.I)
_REDUCERS = frozenset(["mean", "sum", "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "binary_cross_entropy", "norm"])

_VALID_1 = """\
import torch


def f(model, x):
    out = model(x)
    return out.data[0], x.data[0]
"""
_EXAMPLE_1 = diff("""\
import torch
import torch.nn.functional as F


def f(x, y):
    loss = F.cross_entropy(x, y)
    acc = (x == y).float().mean()
-    total = F.nll_loss(x, y).data[0]
+    total = F.nll_loss(x, y).item()
-    return loss.data[0], acc.data[0], total
+    return loss.item(), acc.item(), total
""")
_EXAMPLE_2 = diff("""\
import torch
from torch import nn


def f(x, y):
    criterion = nn.CrossEntropyLoss()
    loss = criterion(x, y)
-    print(loss.data[0])
+    print(loss.item())
""")


class ItemOfScalar(Repair):
    """What it does: takes the number out of a loss or an accuracy with `.item()`, and the first entry of what may have no
    dimension without failing.

    Why: such values have no dimension since torch 0.4, and indexing them raises IndexError.

    Example: `total += loss.data[0]` becomes `total += loss.item()`.

    Fix safety: safe where the function, or the function of the repository that it calls, shows that the value is a loss (it
    back-propagates from it), a mean or a sum; unsafe where only its name says so. After `.squeeze().max(0)` the index
    becomes `.reshape(-1)[0]`, which is right for both shapes.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for node in module.of_kind(ast.Subscript):
            zero = isinstance(node.slice, ast.Constant) and node.slice.value == 0 and type(node.slice.value) is int
            if not zero or not isinstance(node.ctx, ast.Load):
                continue
            end = context.positions.span(node)[1]
            value = node.value
            if isinstance(value, ast.Attribute) and value.attr == "data":
                certain = _is_scalar(module, value.value)
                if certain or _NAMED.search(last_name(value.value)):
                    edit = Edit(context.positions.span(value.value)[1], end, ".item()")
                    offer: Literal["safe", "unsafe"] = "safe" if certain else "unsafe"
                    yield self.fix(context, node, "a loss has no dimension since torch 0.4; write .item()", [edit], offer=offer)
            elif _is_measured(module, value):
                edit = Edit(context.positions.span(value)[1], end, ".item()")
                yield self.fix(context, node, "a full sum has no dimension since torch 0.4; write .item()", [edit])
            elif isinstance(value, ast.Name) and _is_squeezed(module, value):
                edit = Edit(context.positions.span(value)[1], end, ".reshape(-1)[0]")
                yield self.fix(context, node, f"{value.id} has no dimension for a single image; write .reshape(-1)[0]", [edit])


def _assigned(module: Module, node: ast.Name) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What the function, or the file, assigns to a name: (target, value)."""
    scope: ast.AST = module.function_of(node) or module.tree
    for item in ast.walk(scope):
        if isinstance(item, ast.Assign):
            for target in item.targets:
                if any(isinstance(inner, ast.Name) and inner.id == node.id for inner in ast.walk(target)):
                    yield target, item.value


def _is_scalar(module: Module, node: ast.expr) -> bool:
    """Whether it, or everything assigned to it, is a loss or another value without a dimension."""
    if isinstance(node, ast.Call):
        return _reduces(module, node)
    if not isinstance(node, ast.Name):
        return False
    found = list(_assigned(module, node))
    if len(found) == 1 and isinstance(found[0][0], ast.Name) and _goes_back(module, node):
        return True
    return bool(found) and all(isinstance(target, ast.Name) and _reduces(module, value) for target, value in found)


def _goes_back(module: Module, node: ast.Name) -> bool:
    """Whether the function, or the file, back-propagates from it as it is, which only a number can be."""
    scope: ast.AST = module.function_of(node) or module.tree
    back = f"{node.id}.backward"
    return any(dotted(call.func) == back and not call.args and not call.keywords for call in inside(scope, ast.Call))


def _reduces(module: Module, value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return _reduces(module, value.left) and (isinstance(value.right, ast.Constant) or _reduces(module, value.right))
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    if name in _REDUCERS:
        of_tensor = isinstance(value.func, ast.Attribute) and module.expand(value.func) not in ("numpy.mean", "numpy.sum")
        given = len(value.args) if name in ("mean", "sum", "norm") else 0
        return (
            of_tensor and not given and not any(item.arg in ("dim", "axis", "reduction", "reduce") for item in value.keywords)
        )
    if _is_propagated(module, value.func):
        return True
    made = [value for target, value in _assigned(module, value.func)] if isinstance(value.func, ast.Name) else []
    return bool(made) and all(
        isinstance(item, ast.Call)
        and (module.expand(item.func) or "").startswith("torch.nn.")
        and last_name(item.func).endswith("Loss")
        and not any(keyword.arg in ("reduction", "reduce") for keyword in item.keywords)
        for item in (_inner(item) for item in made)
    )


def _inner(value: ast.expr) -> ast.expr:
    """`nn.CrossEntropyLoss()` of `nn.CrossEntropyLoss().cuda()`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("cuda", "to"):
        value = value.func.value
    return value


def _is_squeezed(module: Module, node: ast.Name) -> bool:
    """`best, index = scores.squeeze().max(0)`: numbers where there was one row of scores."""
    found = list(_assigned(module, node))
    return bool(found) and all(
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Call)
        and last_name(value.func) == "max"
        and [ast.unparse(item) for item in value.args] == ["0"]
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Call)
        and last_name(value.func.value.func) == "squeeze"
        and not value.func.value.args
        for target, value in found
    )


def _is_measured(module: Module, node: ast.expr) -> bool:
    """`top1, top5 = accuracy(...)` or `accuracy(...)[0]`, where the function returns sums."""
    if not isinstance(node, ast.Name):
        return False
    found = list(_assigned(module, node))
    return bool(found) and all(
        (
            isinstance(target, ast.Tuple | ast.List)
            and not any(isinstance(item, ast.Starred) for item in target.elts)
            and isinstance(value, ast.Call)
            and returns_scalars(module, value)
        )
        or (
            isinstance(target, ast.Name)
            and isinstance(value, ast.Subscript)
            and isinstance(value.slice, ast.Constant)
            and isinstance(value.value, ast.Call)
            and returns_scalars(module, value.value)
        )
        for target, value in found
    )


def _is_propagated(module: Module, callee: ast.expr) -> bool:
    """Whether the file back-propagates from what the same callee returns, which only a number can be."""
    names = {
        f"{target.id}.backward"
        for node in module.of_kind(ast.Assign)
        if isinstance(node.value, ast.Call) and ast.dump(node.value.func) == ast.dump(callee)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(dotted(call.func) in names and not call.args and not call.keywords for call in module.of_kind(ast.Call))
