"""PS115: `torch.cuda.amp`, which is `torch.amp` today."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import has_fallback, importing, uses
from ..rewriting.call_edits import calls_of, is_spread, with_argument
from ..rewriting.rule import Context, Fix, Repair, diff

_NAMES = ("autocast", "GradScaler")
_HOLDERS = ("torch.cuda.amp", "torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler")

_VALID_1 = """\
import torch

with torch.amp.autocast('cuda'):
    pass  # torch.cuda.amp.autocast()
"""
_EXAMPLE_1 = diff("""\
import torch
-from torch.cuda.amp import GradScaler, autocast
+from torch.amp import GradScaler, autocast

-scaler = GradScaler()
-with autocast(enabled=True):
+scaler = GradScaler("cuda")
+with autocast("cuda", enabled=True):
    pass
-with autocast(False):
+with autocast("cuda", enabled=False):
    pass
""")
_EXAMPLE_2 = diff("""\
import torch

-scaler = torch.cuda.amp.GradScaler(enabled=False)
+scaler = torch.amp.GradScaler("cuda", enabled=False)


-@torch.cuda.amp.autocast()
+@torch.amp.autocast("cuda")
def f():
    pass
""")


class CudaAmp(Repair):
    """What it does: takes autocast and GradScaler from `torch.amp`, with the device as their first argument.

    Why: `torch.cuda.amp` is deprecated since torch 2.4 and warns at each call.

    Example: `with torch.cuda.amp.autocast():` becomes `with torch.amp.autocast("cuda"):`.

    Fix safety: safe; the old classes only pass that argument on. Imports whose names are used otherwise than in calls, or
    with a fallback of their own, stay.
    """

    safety = "safe"
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        """One fix for a file: the import and the calls go together."""
        module = context.module
        calls = [(call, name) for name in _NAMES for call in calls_of(context, f"torch.cuda.amp.{name}")]
        called = {call.func for call, _ in calls}
        others = [node for name in _NAMES for node in uses(module, f"torch.cuda.amp.{name}") if node not in called]
        imports = [item for name in _HOLDERS for item in importing(module, name)]
        plain = all(len(call.args) <= 1 and not is_spread(call) for call, name in calls if name == "autocast")
        scaled = all(not call.args for call, name in calls if name == "GradScaler")
        guarded = any(has_fallback(module, node) for node, _ in imports)
        if not calls or others or not plain or not scaled or guarded:
            return
        edits = [_import_edit(context, node, alias) for node, alias in imports]
        if not all(edits):
            return
        for call, name in calls:
            edits += _call_edits(context, call, name)
        wanted = [edit for edit in edits if edit is not None]
        message = "torch.cuda.amp is deprecated; use torch.amp, which takes the device as its first argument"
        yield self.fix(context, calls[0][0], message, list(dict.fromkeys(wanted)), severity="note")


def _import_edit(context: Context, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Edit | None:
    """`torch.cuda.amp` in an import becomes `torch.amp`, where all that the import brings in moves."""
    positions = context.positions
    start, end = positions.span(node)
    text = (context.module.file.text or "")[start:end]
    if isinstance(node, ast.ImportFrom) and any(item.name not in (*_NAMES, "amp") for item in node.names):
        return None
    old = "torch.cuda" if isinstance(node, ast.ImportFrom) and node.module == "torch.cuda" else "torch.cuda.amp"
    at = text.find(old)
    if at < 0 or (isinstance(node, ast.Import) and not alias.asname):
        return None
    new = "torch" if old == "torch.cuda" else "torch.amp"
    return Edit(start + at, start + at + len(old), new)


def _call_edits(context: Context, call: ast.Call, name: str) -> list[Edit]:
    edits = []
    written = ast.unparse(call.func)
    if written.endswith(f"cuda.amp.{name}"):  # not through an import of amp, or of the name itself
        start, end = context.positions.span(call.func)
        edits.append(Edit(start, end, f"{written.removesuffix(f'cuda.amp.{name}')}amp.{name}"))
    device = '"cuda"'
    if call.args:
        device += ", enabled="
        start = context.positions.span(call.args[0])[0]
        return [*edits, Edit(start, start, device)]
    return [*edits, with_argument(context, call, device, first=True)]
