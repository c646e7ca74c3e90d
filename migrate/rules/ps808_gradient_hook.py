"""PS808: a forward pass that listens to the gradients of a tensor, which has none without them."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.scopes import Module
from ..rewriting.rule import Context, Fix, Repair, diff

_VALID = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        x = self.features(x)
        if x.requires_grad:
            x.register_hook(self.keep)
        self.weight.register_hook(self.keep)
        return self.head(x)

    def explain(self, x):
        x = self.features(x)
        x.retain_grad()
        return self.head(x)


def explain(model, x):
    maps = model.features(x)
    maps.register_hook(print)
    return model.head(maps)
"""
_ASSIGNED = diff("""\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        x = self.features(x)
-        h = x.register_hook(self.keep)
+        h = x.register_hook(self.keep) if x.requires_grad else None
        return self.head(x)
""")
_ALONE = diff("""\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        maps = self.features(x)
        if self.explains:
            maps.register_hook(
                lambda grad: self.grads.append(grad)
-            )
-            maps.retain_grad()
+            ) if maps.requires_grad else None
+            maps.retain_grad() if maps.requires_grad else None
        return self.head(maps)
""")
_LISTENS = frozenset(["register_hook", "retain_grad"])
_ASKS = ("requires_grad", "is_grad_enabled", "grad_fn")


class GradientHook(Repair):
    """What it does: has a forward pass listen to the gradients of a tensor only where that has any.

    Why: Grad-CAM is often written into the network, and `x.register_hook(...)` fails without gradients, as under
    `torch.no_grad()`, so that no graph can be made of it.

    Example: `h = x.register_hook(self.keep)` becomes `h = x.register_hook(self.keep) if x.requires_grad else None`.

    Fix safety: safe, because with gradients nothing changes, and without them it was an error.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_ASSIGNED, _ALONE)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in module.calls:
            match call.func:
                case ast.Attribute(value=ast.Name(id=name), attr=method) if method in _LISTENS and name != "self":
                    message = f"{name}.{method}() fails without gradients, as in a graph; ask {name}.requires_grad first"
                    statement, end = module.statement_of(call), context.positions.span(call)[1]
                    whole = isinstance(statement, ast.Assign | ast.Expr) and statement.value is call
                    if whole and _in_forward(module, call) and not _asked(module, call):
                        yield self.fix(context, call, message, [Edit(end, end, f" if {name}.requires_grad else None")])


def _in_forward(module: Module, call: ast.Call) -> bool:
    function = module.function_of(call)
    return function is not None and function.name == "forward" and module.class_of(function) is not None


def _asked(module: Module, call: ast.Call) -> bool:
    """Whether a test around the call asks for gradients."""
    function = module.function_of(call)
    tests = (node for node in ast.walk(function) if isinstance(node, ast.If | ast.IfExp)) if function is not None else ()
    around = (node for node in tests if any(part is call for part in ast.walk(node)))
    return any(word in ast.unparse(node.test) for node in around for word in _ASKS)
