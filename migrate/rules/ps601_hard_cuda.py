"""PS601: `.cuda()` without asking whether there is a GPU."""

import ast
from collections.abc import Iterator
from itertools import takewhile

from ..reading.edits import Edit
from ..rewriting.call_edits import is_hard, moved_to, sized_as
from ..rewriting.rule import Context, Fix, Repair, diff

_DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'

_VALID_1 = """\
import torch

if torch.cuda.is_available():
    model.cuda()  # x.cuda()
x = x.to('cpu')
"""
_EXAMPLE_1 = diff("""\
import torch
+device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

-model = torch.nn.Linear(2, 2).cuda()
+model = torch.nn.Linear(2, 2).to(device)
for x in loader:
-    y = model(x.cuda(non_blocking=True))
+    y = model(x.to(device, non_blocking=True))
""")


class HardCuda(Repair):
    """What it does: moves models and inputs to one `device`, which is the GPU where there is one.

    Why: the script stops at the first `.cuda()` on a machine without a GPU.

    Example: `model.cuda()` becomes `model.to(device)`, after `device = torch.device("cuda" if torch.cuda.is_available()
    else "cpu")`.

    Fix safety: unsafe: on a machine with a GPU it is the same, but it adds a name to the file. Calls under an `if`, and
    those that name a GPU, stay; tensors that are made beside an input are PS604's.
    """

    safety = "unsafe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1, ("import torch\n\n\ndef f(x, device):\n    return x.cuda()\n", None))

    def check(self, context: Context) -> Iterator[Fix]:
        """One fix for a file: the name and all calls that use it go together."""
        module = context.module
        calls = [call for call in module.of_kind(ast.Call) if is_hard(module, call) and sized_as(module, call) is None]
        if not calls or "torch" not in {name.partition(".")[0] for name in module.imports.values()}:
            return
        place = _device(context)
        edits = [] if place is None else [*place, *(edit for call in calls for edit in moved_to(context, call, "device"))]
        first = min(calls, key=lambda call: (call.lineno, call.col_offset))
        message = f".cuda() fails on a machine without a GPU ({len(calls)} calls in this file); write .to(device)"
        yield self.fix(context, first, message, edits, severity="note")


def _device(context: Context) -> list[Edit] | None:
    """What makes the name `device`: nothing where the file has it at its top; None where it cannot be made."""
    module = context.module
    arguments = [node for node in module.of_kind(ast.arg) if node.arg == "device"]
    stored = [node for node in module.of_kind(ast.Name) if node.id == "device" and not isinstance(node.ctx, ast.Load)]
    if len(stored) == 1 and not arguments:
        statement = module.statement_of(stored[0])
        asked = isinstance(statement, ast.Assign) and "is_available" in ast.unparse(statement.value)
        return [] if asked and statement in module.tree.body else None
    taken = stored or arguments or "device" in module.imports or "device" in module.definitions
    if taken or module.imports.get("torch") != "torch":
        return None
    leading = takewhile(lambda item: isinstance(item, ast.Import | ast.ImportFrom | ast.Expr | ast.Try), module.tree.body)
    imports = [item for item in leading if isinstance(item, ast.Import | ast.ImportFrom)]
    if not any(isinstance(item, ast.Import) and any(alias.name == "torch" for alias in item.names) for item in imports):
        return None
    anchor, text = imports[-1], f"{context.positions.newline(1)}{_DEVICE}"
    end = context.positions.span(anchor)[1]
    at = end + len(context.positions.text[end : context.positions.starts[anchor.end_lineno or 1]].rstrip("\r\n"))
    return [Edit(at, at, text)]
