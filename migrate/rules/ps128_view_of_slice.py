"""PS128: `correct[:k].view(-1)`, which fails since torch 1.7."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import values_of
from ..rewriting.rule import Context, Fix, Repair, diff

_VALID_1 = """\
import torch


def accuracy(output, target, k):
    pred = output.topk(k)[1].t()
    correct = pred.eq(target)
    return correct[:k].reshape(-1).float().sum(0)
"""
_EXAMPLE_1 = diff("""\
import torch


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
-    return [correct[:k].view(-1).float().sum(0, keepdim=True) for k in topk]
+    return [correct[:k].reshape(-1).float().sum(0, keepdim=True) for k in topk]
""")


class ViewOfSlice(Repair):
    """What it does: reshapes a slice of a transposed comparison instead of viewing it.

    Why: `pred.t()` and what is computed from it are not contiguous, and `view` refuses such a tensor; older versions of
    torch made them contiguous.

    Example: `correct[:k].view(-1)` becomes `correct[:k].reshape(-1)`.

    Fix safety: safe; reshape is the view where there can be one, and a copy otherwise.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in module.of_kind(ast.Call):
            node = call.func
            if not (isinstance(node, ast.Attribute) and node.attr == "view" and isinstance(node.value, ast.Subscript)):
                continue
            sliced, function = node.value, module.function_of(call)
            if not isinstance(sliced.slice, ast.Slice) or not isinstance(sliced.value, ast.Name) or function is None:
                continue
            if _is_transposed(function, sliced.value.id):
                end = context.positions.span(node)[1]
                message = f"{sliced.value.id} comes from a transposed tensor, where view() fails on a slice; write reshape()"
                yield self.fix(context, call, message, [Edit(end - len("view"), end, "reshape")])


def _is_transposed(function: ast.AST, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a name of the function is a transposed tensor, or computed from one element by element."""
    for made in values_of(function, name):
        value = made
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr in ("t", "transpose", "permute"):
                return True
            if value.func.attr in ("contiguous", "reshape", "view", "clone"):
                break
            value = value.func.value
        if isinstance(value, ast.Name) and value.id not in seen | {name} and _is_transposed(function, value.id, seen | {name}):
            return True
    return False
