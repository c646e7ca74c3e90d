"""PS147: the values of a table's row by their number, which pandas takes for a column's name."""

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from ..reading.bindings import FUNCTIONS
from ..reading.edits import Edit
from ..reading.nodes import inside, keyword_of
from ..reading.scopes import Module, dotted, last_name, parameters
from ..rewriting.rule import Context, Fix, Repair, diff
from ..survey.survey import ProjectIndex

_EXAMPLE_1 = diff("""\
import pandas as pd
import torch


class Scans(torch.utils.data.Dataset):
    def __init__(self, path, share):
        self.table = pd.read_csv(path)
        self.table = self.table[:int(len(self.table) * share)]

    def __getitem__(self, index):
-        return self.table.iloc[index][2], float(self.table.iloc[index][-1])  # the path and the age
+        return self.table.iloc[index].iloc[2], float(self.table.iloc[index].iloc[-1])  # the path and the age
""")
_EXAMPLE_2 = diff("""\
import pandas
import torch

table = pandas.read_csv("labels.csv", header=None, names=["file", "label"])
for _, row in table[table["label"] != "other"].iterrows():
-    print(row[0], row["label"][0])
+    print(row.iloc[0], row["label"][0])
""")
_VALID = """\
import pandas as pd
import torch

numbered = pd.read_csv("a.csv", header=None)
table = pd.read_csv("b.csv")
first = numbered.iloc[0][1], table.iloc[0, 1], table["path"].iloc[0][0], table.values[0][1], table.iloc[0]["path"][0]
for row in table.itertuples():
    print(row[1])


def shown(frame, rows):
    return frame.iloc[0][1], [row[0] for row in rows]
"""
_READERS = frozenset(["read_csv", "read_table"])
"""Where no other names are given, a column's is text from the file. Excel and Parquet files keep names that are numbers."""
_UNCERTAIN = frozenset([None, "squeeze", "chunksize", "iterator"])
"""Keywords of a reader with which it may give something else than a table; None is that of `**options`."""
_KEPT = frozenset(
    ["assign", "astype", "convert_dtypes", "copy", "drop", "drop_duplicates", "dropna", "fillna", "head", "infer_objects",
     "nlargest", "nsmallest", "query", "reset_index", "sample", "set_index", "sort_index", "sort_values", "tail"]
)  # fmt: skip
"""Methods of a table that give a table, whose columns have no new names but such as are text."""
_KEPT_ROW = frozenset(["astype", "copy", "fillna"])
_MASKS = frozenset(
    ["between", "contains", "duplicated", "endswith", "isin", "isna", "isnull", "notna", "notnull", "startswith"]
)  # fmt: skip
_GROWING = frozenset(["append", "extend", "insert", "setdefault", "update"])
"""Methods that add a column to a table, or something to a list or a dictionary."""
_OPEN = "open"
"""What a name is found to be in a value that is made of its own: `table` in `table = table[:10]`."""
_DEEPEST = 12
"""Names that are made of others, one after the other; nobody goes further."""
_Key = tuple[ast.AST, str]


class RowPositions(Repair):
    """What it does: takes the values of a table's row by their position with `iloc`.

    Why: since pandas 3 an integer in the brackets of a row is a column's name, also where names are text: a KeyError.

    Example: `table.iloc[index][2]` becomes `table.iloc[index].iloc[2]`.

    Fix safety: safe; it is the same value. A row is only taken for one where its table can be followed to `read_csv` or
    `DataFrame` in the same file, and the names of all its columns are text; numbers that are names are left alone.
    """

    safety = "safe"
    VALID = (_VALID,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)

    def check(self, context: Context) -> Iterator[Fix]:
        module = context.module
        if not any(full.partition(".")[0] == "pandas" for full in module.imports.values()):
            return
        tables, strings = _Tables(module, context.index), set[ast.AST]()
        for node in module.nodes:
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load) or not _is_number(node.slice):
                continue
            if tables.kind(node.value) == "row":
                around = [item for item in module.ancestors(node) if isinstance(item, ast.JoinedStr)]
                if around and around[-1] in strings:
                    continue
                strings.update(around)
                message = "pandas takes an integer in the brackets of a row for a column's name; write iloc for its position"
                edits = _edits(context, node) if not around else []  # nothing edits strings
                yield self.fix(context, around[-1] if around else node, message, edits, severity="error")


class _Tables:
    """What the expressions of one file are, as far as this is certain.

    "frame": a table whose columns have text for names; "row": one of its rows; "rows": what `iterrows` gives; "pair": one of
    those; "mask": what chooses rows; "text", "texts": one name or several; "mapping": a dictionary of columns; "none".
    """

    def __init__(self, module: Module, index: ProjectIndex) -> None:
        self.module = module
        self.index = index
        self.found: dict[_Key, str | None] = {}
        self.open: list[_Key] = []

    @cached_property
    def places(self) -> dict[str, list[ast.expr]]:
        """Names, and attributes as written, each with the places where they stand."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.module.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)) is not None:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def otherwise(self) -> set[str]:
        """Names that are bound by a definition, an import, `except` or a pattern."""
        named = (getattr(node, part, None) for node in self.module.nodes for part in ("name", "asname", "rest"))
        return {name for name in named if isinstance(name, str)}

    def kind(self, node: ast.AST | None) -> str | None:
        if isinstance(node, ast.Constant):
            return {str: "text", type(None): "none"}.get(type(node.value))
        if isinstance(node, ast.JoinedStr):
            return "text"
        if isinstance(node, ast.List | ast.Tuple):
            return "texts" if node.elts and all(self.kind(item) == "text" for item in node.elts) else None
        if isinstance(node, ast.Dict):
            return "mapping" if all(self.kind(key) == "text" for key in node.keys) else None
        if isinstance(node, ast.IfExp):
            return self._agreed([self.kind(node.body), self.kind(node.orelse)])
        if isinstance(node, ast.Compare) or _is_logic(node):
            return "mask"
        if isinstance(node, ast.Subscript):
            return self._part(node)
        if isinstance(node, ast.Call):
            return self._made(node)
        name = dotted(node)
        if node is not None and name is not None and (isinstance(node, ast.Name) or re.fullmatch(r"self\.\w+", name)):
            return self._named(node, name)
        if isinstance(node, ast.Attribute) and node.attr == "columns" and self.kind(node.value) == "frame":
            return "texts"
        return None

    @staticmethod
    def _agreed(kinds: list[str | None]) -> str | None:
        """What all values are that a name may have. One made of itself is what it was where that is a table."""
        known = set(kinds) - {"none", _OPEN}
        if len(known) > 1 or (_OPEN in kinds and known not in ({"frame"}, set())):
            return None
        return known.pop() if known else (_OPEN if _OPEN in kinds else None)

    def _part(self, node: ast.Subscript) -> str | None:
        base, key = node.value, node.slice
        if isinstance(base, ast.Attribute) and base.attr in ("iloc", "loc"):
            whole = self.kind(base.value)
            rows, columns = key.elts if isinstance(key, ast.Tuple) and len(key.elts) == 2 else (key, None)
            if whole not in ("frame", _OPEN) or isinstance(rows, ast.Tuple):
                return None
            if columns is not None and not self._many(columns):
                return None
            return whole if self._many(rows) else "row" if whole == "frame" else None
        whole = self.kind(base)
        if whole == "pair" and isinstance(key, ast.Constant) and key.value == 1:
            return "row"
        return whole if whole in ("frame", "row", _OPEN) and (isinstance(key, ast.Slice) or self._many(key)) else None

    def _many(self, key: ast.expr) -> bool:
        """Whether what stands in brackets chooses several rows or columns."""
        return isinstance(key, ast.Slice | ast.List | ast.ListComp) or self.kind(key) in ("mask", "texts")

    def _made(self, call: ast.Call) -> str | None:
        full = self.module.expand(call.func) or ""
        name = last_name(call.func)
        if full.startswith("pandas.") and name in (*_READERS, "read_excel"):
            return self._read(call, name in _READERS)
        if full.startswith("pandas.") and name == "DataFrame":
            return self._built(call)
        if full == "dict":
            return "mapping" if not call.args and all(item.arg is not None for item in call.keywords) else None
        if full == "str":
            return "text"
        if not isinstance(call.func, ast.Attribute):
            return None
        if name in _MASKS:
            return "mask"
        base = self.kind(call.func.value)
        if base == "row" and name in _KEPT_ROW:
            return base
        if base not in ("frame", _OPEN):
            return None
        if name == "iterrows":
            return "rows" if base == "frame" else None
        return base if name in _KEPT and not keyword_of(call, "names") and not keyword_of(call, "inplace") else None

    def _read(self, call: ast.Call, as_text: bool) -> str | None:
        """What is read from a file: a table, where the names are text that the file or the call gives."""
        given = {item.arg: item.value for item in call.keywords}
        if len(call.args) > (1 if as_text else 2) or not _UNCERTAIN.isdisjoint(given):
            return None
        if "names" in given:
            return "frame" if self.kind(given["names"]) == "texts" else None
        header = given.get("header")
        first = header is None or (isinstance(header, ast.Constant) and (type(header.value) is int or header.value == "infer"))
        return "frame" if as_text and first else None

    def _built(self, call: ast.Call) -> str | None:
        given: dict[str | None, ast.expr] = dict(zip(("data", "index", "columns"), call.args, strict=False))
        given |= {item.arg: item.value for item in call.keywords}
        if None in given or any(isinstance(item, ast.Starred) for item in call.args):
            return None
        if "columns" in given:
            return "frame" if self.kind(given["columns"]) == "texts" else None
        data = given.get("data")
        if data is None or self.kind(data) in ("frame", "mapping"):  # an empty table has what columns it is given later
            return "frame"
        records = data.elts if isinstance(data, ast.List) else [data.elt] if isinstance(data, ast.ListComp) else []
        return "frame" if records and all(self.kind(item) == "mapping" for item in records) else None

    def _named(self, node: ast.AST, name: str) -> str | None:
        scope = self._scope(node, name)
        key = (scope, name)
        if key in self.found:
            return self.found[key]
        if key in self.open or len(self.open) >= _DEEPEST:
            return _OPEN if key == self.open[-1] else None  # of two names that are made of each other, nothing is said
        self.open.append(key)
        self.found[key] = self._bound(scope, name)
        self.open.pop()
        return self.found[key]

    def _bound(self, scope: ast.AST, name: str) -> str | None:
        """What a name is by all that is assigned to it, unless it may become something else afterwards."""
        if name in self.otherwise or self._is_given(scope, name):
            return None
        places = [item for item in self.places[name] if self._scope(item, name) is scope]
        stored = [item for item in places if isinstance(item.ctx, ast.Store)]  # type: ignore[attr-defined]
        kind = self._agreed([self._value(item) for item in stored])
        return None if kind == _OPEN or any(self._spoils(kind, item) for item in places) else kind

    def _scope(self, node: ast.AST, name: str) -> ast.AST:
        """The function, comprehension, class or file that a name belongs to; the class of an object with that attribute."""
        within = False
        for scope in self.module.ancestors(node):
            if "." in name:
                if isinstance(scope, ast.ClassDef):
                    return scope
            elif not (within and isinstance(scope, ast.ClassDef)) and name in self.module.names_of(scope):
                return scope
            within |= isinstance(scope, FUNCTIONS)  # which do not see the names of their class
        return self.module.tree

    def _is_given(self, scope: ast.AST, name: str) -> bool:
        """Whether a name has values that do not stand here: those of a parameter, or what others give an object."""
        if isinstance(scope, FUNCTIONS):
            return any(item.arg == name for item in parameters(scope))
        if "." not in name:
            return False
        if not isinstance(scope, ast.ClassDef):
            return True
        bases = {last_name(item) for item in scope.bases}
        related = (
            other
            for module in self.index.repository.modules.values()
            for other in module.of_kind(ast.ClassDef)
            if other is not scope and (other.name in bases or scope.name in map(last_name, other.bases))
        )
        elsewhere = [item for item in _stores(self.module.tree, name) if dotted(item) != name]  # shown.table = ...
        return bool(elsewhere) or any(any(_stores(other, name)) for other in related)

    def _value(self, target: ast.expr) -> str | None:
        """What an assignment or a loop gives to a name."""
        path: list[int] = []
        node: ast.AST = target
        parent = self.module.parents[node]
        while isinstance(parent, ast.Tuple | ast.List):
            path.insert(0, parent.elts.index(node))  # type: ignore[arg-type]
            node, parent = parent, self.module.parents[parent]
        if isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension):
            return self._element(parent.iter, path)
        if not isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            return None
        if parent.value is None:
            return "none"
        value = parent.value
        if path and isinstance(value, ast.Tuple) and isinstance(node, ast.Tuple) and len(value.elts) == len(node.elts):
            value = value.elts[path.pop(0)]
        return self.kind(value) if not path else None

    def _element(self, values: ast.expr, path: list[int]) -> str | None:
        """What a loop gives to one of its names: `row` in `for i, (_, row) in enumerate(table.iterrows())` is at [1, 1]."""
        if isinstance(values, ast.Call) and values.args and last_name(values.func) == "enumerate":
            return self._element(values.args[0], path[1:]) if path[:1] == [1] else None
        if isinstance(values, ast.Call) and values.args and last_name(values.func) in ("tqdm", "list"):
            return self._element(values.args[0], path)
        kind = self.kind(values)
        if kind == "rows":
            return "pair" if not path else "row" if path == [1] else None
        return "text" if kind == "texts" and not path else None

    def _spoils(self, kind: str | None, place: ast.expr) -> bool:
        """Whether something happens to an object after which a number may be one of its names, or other names may."""
        parent = self.module.parents[place]
        if isinstance(parent, ast.Subscript) and parent.value is place and isinstance(parent.ctx, ast.Store):
            return self.kind(parent.slice) not in ("text", "texts", "mask")
        if not isinstance(parent, ast.Attribute) or parent.value is not place:
            return False
        around = self.module.parents[parent]
        if isinstance(parent.ctx, ast.Store):
            named = isinstance(around, ast.Assign) and self.kind(around.value) == "texts"
            return not named if parent.attr == "columns" else parent.attr == "index" and kind == "row"
        if isinstance(around, ast.Subscript) and around.value is parent and isinstance(around.ctx, ast.Store):
            key = around.slice
            column = key.elts[-1] if isinstance(key, ast.Tuple) else key if kind == "row" else None
            named = column is None or isinstance(column, ast.Slice) or self.kind(column) in ("text", "texts")
            return parent.attr in ("loc", "at") and not named
        if not isinstance(around, ast.Call) or around.func is not parent:
            return False
        renamed = keyword_of(around, "columns") if parent.attr == "rename" else None
        if renamed is not None and isinstance(renamed.value, ast.Dict):
            return not all(self.kind(item) == "text" for item in renamed.value.values)
        inplace = parent.attr in ("rename", "set_axis") and keyword_of(around, "inplace") is not None
        return parent.attr in _GROWING or inplace


def _stores(scope: ast.AST, name: str) -> Iterator[ast.Attribute]:
    """What assigns to an attribute of that name, whatever the object."""
    attribute = name.partition(".")[2]
    return (item for item in inside(scope, ast.Attribute) if item.attr == attribute and isinstance(item.ctx, ast.Store))


def _is_number(node: ast.expr) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(value, ast.Constant) and type(value.value) is int


def _is_logic(node: ast.AST | None) -> bool:
    """`a & b`, `a | b` and `~a`, which choose rows."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


def _edits(context: Context, node: ast.Subscript) -> list[Edit]:
    """What goes before the bracket, where it is plain to see between the row and the number."""
    place = context.positions.sign_between(node.value, node.slice, "[")
    return [Edit(place, place, ".iloc")] if place is not None else []
