"""PS152: cells of a table that are written by way of its column, which changes nothing since pandas 3."""

import ast
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.nodes import inside, values_of
from ..reading.scopes import Module, dotted
from ..rewriting.rule import Context, Fix, Repair, diff

_EXAMPLE_1 = diff("""\
import pandas as pd
import torch


class Tracker:
    def __init__(self, *keys):
        self._data = pd.DataFrame(index=keys, columns=["total", "counts"])
        for col in self._data.columns:
-            self._data[col].values[:] = 0
+            self._data.loc[:, col] = 0

    def update(self, key, value, n=1):
-        self._data.total[key] += value * n
+        self._data.loc[key, "total"] += value * n
-        self._data["counts"][key] += n
+        self._data.loc[key, "counts"] += n
""")
_EXAMPLE_2 = diff("""\
import pandas
import torch

rows = pandas.read_csv("rows.csv")
-rows["label"][rows["label"] > 5] = 5  # the last class
+rows.loc[rows["label"] > 5, "label"] = 5  # the last class
""")
_OTHER_WRITES = """\
import pandas as pd
import torch

table = pd.DataFrame()
table["a"] = 1
table.loc[0, "a"] = 2
table["a"][0:2] = 3
table.values[0] = 4
"""
_OTHER_NAMES = """\
import pandas as pd
import torch

table = pd.DataFrame()
rows = {"a": [1]}
rows["a"][0] = 2


def write(table):
    table["a"][0] = 1


for frame in [pd.DataFrame(), rows]:
    frame["a"][0] = 1
frame = pd.DataFrame()
several = pd.DataFrame()
several = [several]
several[0]["a"] = 1
"""
_OF_FRAMES = frozenset(["loc", "iloc", "at", "iat", "values", "index", "columns", "attrs", "T", "flags"])


class TableWrites(Repair):
    """What it does: writes cells of a table of pandas by `loc`.

    Why: since pandas 3 a column that is taken from a table is a copy of its own. `table["total"][key] = 1` changes that copy
    alone, and with `table["total"].values[:] = 0` the script ends, since the values cannot be written.

    Example: `table.total[key] += 1` becomes `table.loc[key, "total"] += 1`.

    Fix safety: safe; that is what they did before. Only names to which nothing is given but what `DataFrame` or a reader of
    pandas gives are taken for tables, and no slices of rows, which `loc` takes by their labels.
    """

    safety = "safe"
    VALID = (_OTHER_WRITES, _OTHER_NAMES)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        module, positions = context.module, context.positions
        if "pandas" not in module.imports.values():
            return
        for target in module.of_kind(ast.Subscript):
            if not isinstance(target.ctx, ast.Store) or (parts := _parts(target)) is None or not _is_table(module, parts[0]):
                continue
            table, column, rows = parts
            named = f'"{column}"' if isinstance(column, str) else positions.text[slice(*positions.span(column))]
            row = ":" if rows is None else positions.text[slice(*positions.span(rows))]
            start, end = positions.span(target)
            edit = Edit(positions.span(table)[1], end, f".loc[{row}, {named}]")
            message = f"a column is a copy since pandas 3; write {positions.text[start : edit.start]}{edit.text}"
            yield self.fix(context, target, message, [edit], severity="error")


def _parts(target: ast.Subscript) -> tuple[ast.expr, ast.expr | str, ast.expr | None] | None:
    """The table, the column and the rows of what is written; None for the rows where it is all of them."""
    inner, rows = target.value, target.slice
    every = isinstance(inner, ast.Attribute) and inner.attr == "values" and ast.unparse(rows) == ":"
    if isinstance(inner, ast.Attribute) and every:
        inner = inner.value
    elif isinstance(rows, ast.Slice | ast.Tuple):
        return None
    written = None if every else rows
    if isinstance(inner, ast.Subscript) and not isinstance(inner.slice, ast.Slice | ast.Tuple):
        return inner.value, inner.slice, written
    if isinstance(inner, ast.Attribute) and inner.attr not in _OF_FRAMES:
        return inner.value, inner.attr, written
    return None


def _is_table(module: Module, node: ast.expr) -> bool:
    """Whether all that is given to a name, or to an attribute of a class, makes a table."""
    name = dotted(node)
    if name is None:
        return False
    function = module.function_of(node)
    if function is not None and name in {item.arg for item in inside(function.args, ast.arg)}:
        return False
    own = module.class_of(function) if function is not None and name.startswith("self.") else None
    scope = own or (function if function is not None and values_of(function, name) else module.tree)
    values = values_of(scope, name)
    made = [module.expand(value.func) if isinstance(value, ast.Call) else None for value in values]
    given: list[ast.Name | ast.Attribute] = [*inside(scope, ast.Name), *inside(scope, ast.Attribute)]
    stores = [item for item in given if not isinstance(item.ctx, ast.Load) and dotted(item) == name]
    alone = len(stores) == len(values)  # no loop gives it something else
    return bool(made) and alone and all(full == "pandas.DataFrame" or (full or "").startswith("pandas.read_") for full in made)
