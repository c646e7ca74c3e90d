"""PS145: rows added to a table by `DataFrame.append`, which pandas removed."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside
from ..reading.scopes import Module, dotted
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import pandas as pd
import torch

log = pd.DataFrame(columns=["epoch", "loss"])
for epoch in range(3):
    row = pd.Series([epoch, 0.5], index=["epoch", "loss"])
-    log = log.append(row, ignore_index=True)  # one line for each epoch
+    log = pd.concat([log, row.to_frame().T.infer_objects()], ignore_index=True)  # one line for each epoch
-    log = log.append({
+    log = pd.concat([log, pd.Series({
        "epoch": epoch,
-    }, ignore_index=True)
+    }).to_frame().T.infer_objects()], ignore_index=True)
""")
_EXAMPLE_2 = diff("""\
import pandas
import torch


def joined(parts):
    whole = pandas.DataFrame()
    for part in parts:
        more = pandas.read_csv(part)
-        whole = whole.append(more, ignore_index=True, sort=False)
+        whole = pandas.concat([whole, more], ignore_index=True, sort=False)
    return whole
""")
_UNKNOWN = """\
import pandas as pd
import torch


def kept(frame, row):
    return frame.append(row, ignore_index=True)
"""
_ROW = ").to_frame().T.infer_objects()"
_AROUND = {"dict": ("{pandas}.Series(", _ROW), "series": ("", _ROW[1:]), "frame": ("", "")}
_KEYWORDS = frozenset(["ignore_index", "sort", "verify_integrity"])


class FrameAppend(Repair):
    """What it does: adds rows to a table of pandas by `concat`.

    Why: `DataFrame.append` was removed in pandas 2.0.

    Example: `log = log.append(row, ignore_index=True)` becomes
    `log = pd.concat([log, row.to_frame().T.infer_objects()], ignore_index=True)`, where `row` is a Series.

    Fix safety: safe; that is what `append` did. Only calls with `ignore_index` are taken for those of a table, since a list's
    take no such argument; where it cannot be told what is added, the rule only remarks.
    """

    safety = "safe"
    VALID = ("import pandas as pd\nimport torch\n\nrows = []\nrows.append({'epoch': 1})\nlog = pd.DataFrame(rows)\n",)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2, (_UNKNOWN, None))

    def check(self, context: Context) -> Iterator[Fix]:
        module, positions = context.module, context.positions
        pandas = next((name for name, full in module.imports.items() if full == "pandas"), None)
        for call in module.of_kind(ast.Call) if pandas is not None else ():
            names = {item.arg for item in call.keywords}
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "append" or len(call.args) != 1:
                continue
            if "ignore_index" not in names or not names <= _KEYWORDS:
                continue
            start, middle = positions.span(call.func.value)
            first, last = positions.span(call.args[0])
            kind = _kind(module, call, call.args[0])
            edits: list[Edit] = []
            if kind is not None and "".join(positions.text[middle:first].split()) == ".append(":
                before, after = (part.format(pandas=pandas) for part in _AROUND[kind])
                edits = [
                    Edit(start, start, f"{pandas}.concat(["), Edit(middle, first, f", {before}"), Edit(last, last, f"{after}]"),
                ]  # fmt: skip
            message = "pandas removed DataFrame.append; write concat, which takes tables"
            yield self.fix(context, call, message, edits, severity="error")


def _kind(module: Module, call: ast.Call, added: ast.expr) -> str | None:
    """What is added: a row as a "dict" or a "series", or a "frame"; None where that cannot be told, or is not one of them."""
    values = [added]
    if (name := dotted(added)) is not None:
        scope = module.function_of(call) or module.tree
        stored = [node for node in inside(scope, ast.Name) if node.id == name and not isinstance(node.ctx, ast.Load)]
        values = [node.value for node in inside(scope, ast.Assign) if any(target in stored for target in node.targets)]
        if len(values) != len(stored):
            return None  # a loop, or an assignment to several names, binds it too
    kinds = {_made(module, value) for value in values}
    return kinds.pop() if len(kinds) == 1 else None


def _made(module: Module, value: ast.expr) -> str | None:
    if isinstance(value, ast.Dict):
        return "dict"
    made = module.expand(value.func) if isinstance(value, ast.Call) else None
    if made == "dict":
        return "dict"
    if made == "pandas.Series":
        return "series"
    return "frame" if made is not None and (made == "pandas.DataFrame" or made.startswith("pandas.read_")) else None
