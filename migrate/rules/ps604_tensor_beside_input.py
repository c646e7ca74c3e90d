"""PS604: a tensor that is made beside an input, and moved to the GPU wherever that input lies."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..rewriting.call_edits import beside, is_hard, moved_to, sized_as, with_argument
from ..rewriting.rule import Context, Fix, Repair, diff

_VALID = """\
import torch


def pad(x, like):
    zeros = torch.zeros(x.size(0), 3, device=x.device)
    x = x.cuda()
    return torch.cat([x, torch.zeros(x.size(0), 3).cuda(), zeros, torch.zeros(2, 3).cuda()])


class Pair(torch.nn.Module):
    def forward(self, images):
        first, second = images
        return first + torch.eye(3).cuda() + torch.cuda.FloatTensor(second)
"""
_EXAMPLE = diff("""\
import torch


def forward(self, x):
-    pad = torch.zeros(x.size(0), 3, *x.shape[2:]).float().cuda()
+    pad = torch.zeros(x.size(0), 3, *x.shape[2:]).float().to(x.device)
    return torch.cat([x, pad], dim=1)
""")
_EXAMPLE_2 = diff("""\
import torch
from torch import nn


class Shortcut(nn.Module):
    def forward(self, x):
        size = x.size()
-        pad = torch.cuda.FloatTensor(size[0], 3, size[2], size[3]).fill_(0)
-        return torch.cat([x, pad + torch.zeros(size[0], 1, 1, 1).cuda()], dim=1) * self.weights.cuda()
+        pad = torch.empty(size[0], 3, size[2], size[3], dtype=torch.float32, device=x.device).fill_(0)
+        return torch.cat([x, pad + torch.zeros(size[0], 1, 1, 1).to(x.device)], dim=1) * self.weights.to(x.device)
""")
_KINDS = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Byte": "uint8"}
_DTYPES = {f"torch.cuda.{name}Tensor": dtype for name, dtype in _KINDS.items()}


class TensorBesideInput(Repair):
    """What it does: makes a tensor that has its size of an input, or that a module's `forward` makes, on its input's device.

    Why: such a layer fails on a machine without a GPU, so that its model is neither packaged nor served there; and on a
    second GPU, where the current one is the first.

    Example: `torch.zeros(x.size(0), 3).cuda()` becomes `torch.zeros(x.size(0), 3).to(x.device)`, and
    `torch.cuda.FloatTensor(2, 3)` becomes `torch.empty(2, 3, dtype=torch.float32, device=x.device)`.

    Fix safety: safe: what is made goes together with the input that says its size, or that its module is called with, and so
    lies where that lies. Where the function moves that input itself the call stays.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in module.of_kind(ast.Call):
            dtype = _DTYPES.get(module.expand(call.func) or "")
            name = sized_as(module, call) if is_hard(module, call) else beside(module, call) if dtype else None
            if name is None:
                continue
            message = f"what is made beside {name} fails on a machine without a GPU; write "
            if dtype is None:
                yield self.fix(context, call, f"{message}.to({name}.device)", moved_to(context, call, f"{name}.device"))
            elif _are_sizes(call):
                edits = [
                    Edit(*context.positions.span(call.func), f"{ast.unparse(call.func).partition('.cuda.')[0]}.empty"),
                    with_argument(context, call, f"dtype=torch.{dtype}, device={name}.device"),
                ]
                yield self.fix(context, call, f"{message}torch.empty(..., device={name}.device)", edits)


def _are_sizes(call: ast.Call) -> bool:
    """Whether a tensor is made of its sizes, not of the numbers in it."""
    only = call.args[0] if len(call.args) == 1 else None
    asked = only.func if isinstance(only, ast.Call) else only
    of_another = isinstance(asked, ast.Attribute) and asked.attr in ("size", "shape")
    return not call.keywords and (len(call.args) > 1 or of_another)
