"""PS604: a tensor that is made beside an input, and moved to the GPU wherever that input lies."""

import ast
from collections.abc import Iterator

from ..rewriting.call_edits import is_hard, moved_to, sized_as
from ..rewriting.rule import Context, Fix, Repair, diff

_VALID = """\
import torch


def pad(x, like):
    zeros = torch.zeros(x.size(0), 3, device=x.device)
    x = x.cuda()
    return torch.cat([x, torch.zeros(x.size(0), 3).cuda(), zeros, torch.zeros(2, 3).cuda()])
"""
_EXAMPLE = diff("""\
import torch


def forward(self, x):
-    pad = torch.zeros(x.size(0), 3, *x.shape[2:]).float().cuda()
+    pad = torch.zeros(x.size(0), 3, *x.shape[2:]).float().to(x.device)
    return torch.cat([x, pad], dim=1)
""")


class TensorBesideInput(Repair):
    """What it does: makes a tensor that has its size of an input on that input's device.

    Why: such a layer fails on a machine without a GPU, so that its model is neither packaged nor served there; and on a
    second GPU, where the current one is the first.

    Example: `torch.zeros(x.size(0), 3).cuda()` becomes `torch.zeros(x.size(0), 3).to(x.device)`.

    Fix safety: safe: what is made goes together with the input that says its size, and so lies where that lies. Where the
    function moves that input itself the call stays.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE,)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        for call in module.of_kind(ast.Call):
            name = sized_as(module, call) if is_hard(module, call) else None
            if name is not None:
                message = f"what is made beside {name} fails on a machine without a GPU; write .to({name}.device)"
                yield self.fix(context, call, message, moved_to(context, call, f"{name}.device"))
