"""PS807: the batch size by `len(x)`."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside, leaves_torch
from ..reading.scopes import Function, Module, dotted, last_name
from ..rewriting.rule import Context, Fix, Repair, diff

_VALID = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.LSTM(4, 4)

    def forward(self, images):
        n = len(images)
        images = torch.stack(images)
        parts = images.chunk(n)
        found = self.rows(images)
        return images.view(n, -1), len(parts), len(self.blocks), len(found)
"""
_FLATTENED = diff("""\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
-        return self.fc(self.pool(x).view(len(x), -1)), x.mean()
-        return self.fc(x.reshape(len(x), -1))
+        return self.fc(self.pool(x).view(x.shape[0], -1)), x.mean()
+        return self.fc(x.reshape(x.shape[0], -1))
""")
_EXPANDED = diff("""\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        x = self.patches(x).flatten(2).mT
-        return torch.cat([self.token.expand(len(x), -1, -1), x], 1)
+        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
""")
_GIVE_TENSORS = frozenset(
    "cat contiguous expand flatten matmul mean permute relu repeat reshape squeeze stack sum transpose unsqueeze view".split()  # noqa: SIM905
)
_OF_TENSORS = _GIVE_TENSORS | {"chunk", "dim", "ndim", "shape", "size", "split"}
_TURNED = frozenset(["T", "mT"])
_OF_SEVERAL = re.compile(r"LSTM|GRU|RNN|Attention|Dict|List")
"""Layers that give more than a tensor, or are none."""


class RowCount(Repair):
    """What it does: asks a tensor in a network for its rows by `x.shape[0]`, not by `len(x)`.

    Why: `len()` gives a plain integer, which fixes the batch size of a graph (PG121).

    Example: `x.view(len(x), -1)` becomes `x.view(x.shape[0], -1)`.

    Fix safety: safe, because it is written only where the variable is certainly a tensor: its statement, or one since it was
    given its value, uses it as one (`x.view`, `x.shape`), or what it was given is what such a call gives.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_FLATTENED, _EXPANDED)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in module.calls:
            match call:
                case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)], keywords=[]):
                    function = module.function_of(call)
                    if function is not None and _of_network(module, function) and _is_tensor(module, function, name, call):
                        message = f"len({name}) fixes the batch size of a graph; write {name}.shape[0]"
                        edit = Edit(*context.positions.span(call), f"{name}.shape[0]")
                        yield self.fix(context, call, message, [edit])


def _of_network(module: Module, function: Function) -> bool:
    kind = module.class_of(function)
    methods = kind.body if kind is not None else []
    forward = any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in methods)
    return forward and not leaves_torch(function)


def _is_tensor(module: Module, function: Function, name: str, call: ast.Call) -> bool:
    statement = module.statement_of(call)
    bound = [node for node in inside(function, ast.Name) if node.id == name and isinstance(node.ctx, ast.Store)]
    line = max((node.lineno for node in bound if node.lineno < statement.lineno), default=0)
    tested = (item for item in inside(function, ast.Call) if last_name(item.func) == "isinstance" and item.args)
    if any(isinstance(item.args[0], ast.Name) and item.args[0].id == name for item in tested):
        return False
    given = [
        node.value
        for node in inside(function, ast.Assign)
        if node.lineno == line and any(target in bound for target in node.targets)
    ]
    if any(isinstance(value, ast.Attribute) and value.attr in _TURNED for value in given):
        return True
    calls = [value.func for value in given if isinstance(value, ast.Call)]
    if any(last_name(func) in _GIVE_TENSORS or _is_layer(module, function, func) for func in calls):
        return True
    return any(
        isinstance(node.value, ast.Name) and node.value.id == name and node.attr in _OF_TENSORS
        for node in inside(function, ast.Attribute)
        if line < node.lineno <= (statement.end_lineno or statement.lineno)
    )


def _is_layer(module: Module, function: Function, func: ast.expr) -> bool:
    """Whether what is called is a layer of torch's that the network makes: `self.embed = nn.Conv2d(...)`."""
    kind = module.class_of(function)
    name = dotted(func) or ""
    made = [node.value for node in inside(kind, ast.Assign) if any(dotted(target) == name for target in node.targets)]
    layers = [
        value for value in made if isinstance(value, ast.Call) and (module.expand(value.func) or "").startswith("torch.nn.")
    ]
    return len(made) == 1 and bool(layers) and name.startswith("self.") and not _OF_SEVERAL.search(ast.unparse(layers[0]))
