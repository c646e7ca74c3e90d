"""PS805: a part of a model that is compiled to TorchScript."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.call_edits import calls_of, source_of
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
-        self.act = torch.jit.script(nn.SiLU())
-        self.layers = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.ReLU()))
+        self.act = nn.SiLU()
+        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
""")


class ScriptedModule(Repair):
    """What it does: builds the part as an ordinary module.

    Why: TorchScript is deprecated, and a model with a compiled part cannot become a graph (PG108), which compiles all of
    it.

    Example: `self.act = torch.jit.script(Swish())` becomes `self.act = Swish()`.

    Fix safety: safe; TorchScript computes what the module computes. Functions with `@torch.jit.script` stay, since a
    graph takes them in. What is compiled to be saved stays, too.
    """

    safety = "safe"
    VALID = ("import torch\n\n\n@torch.jit.script\ndef swish(x):\n    return x * x.sigmoid()\n",)
    INVALID = (_EXAMPLE_1,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in calls_of(context, "torch.jit.script"):
            function = module.function_of(call)
            inside = function is not None and function.name == "__init__" and module.class_of(function) is not None
            if inside and len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.Call):
                edit = Edit(*context.positions.span(call), source_of(context, call.args[0]))
                yield self.fix(context, call, "a graph takes no TorchScript module; leave torch.jit.script out", [edit])
