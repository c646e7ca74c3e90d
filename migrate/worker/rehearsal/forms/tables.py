"""Tables that a script reads with pandas: how they are written, which columns they have, and the values in these."""

from __future__ import annotations

import functools
import linecache
import re
from typing import Any

from ..making import FRAMES, MADE_NAME, MOST_COLUMNS, PLAIN, SET_COLUMNS, TABLES, WIDTH
from ..places import called_by_user
from ..stage import Stage

_MISSED_COLUMNS = re.compile(
    r"\bcolumns?\b.*\b(missing|not found|expected|required)\b|\b(missing|expected|required)\b.*\bcolumns?\b"
    r"|\] not (found )?in (axis|index)\b",
    re.I,
)
_QUOTED = re.compile(r"'([^'\n]+)'")
"""What is said of columns that a table should have, by pandas (`usecols`, `drop`) or the script itself, and their names."""
_ATTRIBUTE = re.compile(r"'(?:DataFrame|Series|Pandas)' object has no attribute '(\w+)'")
"""What is said of a column that is asked for as an attribute, of a table or a row; `Pandas` is a row of `itertuples`."""
_GONE = frozenset(("append", "applymap", "as_matrix", "get_value", "iteritems", "ix", "lookup", "mad", "set_value"))
"""Methods that pandas removed, which are no columns."""
_OTHER_COUNT = re.compile(r"Length mismatch: Expected axis has \d+ elements, new values have \d+ elements")
_LISTS = (list, tuple, set)
_UNPACKED = re.compile(r"not enough values to unpack \(expected (\d+), got \d+\)")
_TOO_MANY = re.compile(r"too many values to unpack \(expected (\d+)")
_BY_PLACE = re.compile(r"\b(\w+)\[(\d+)\]")
_MOST_BY_PLACE = 64
"""So many columns at most are taken apart by a script itself."""
_MOST_COLUMNS = 22_000
"""So many columns that are asked for together are made."""


def watch(stage: Stage, pandas: Any) -> None:
    """See how tables are read, and what is searched for in them."""
    _reads(stage, pandas)
    _filters(stage, pandas.Series)
    for kind in (pandas.DataFrame, pandas.Series):
        stage.wrap(kind, "sample", functools.partial(_drawn, stage))
    for owner in (pandas, pandas.DataFrame):
        stage.wrap(owner, "merge", functools.partial(_merged, stage))


def _drawn(stage: Stage, original: Any, self: Any, n: Any = None, *args: Any, **named: Any) -> Any:
    """Of fewer rows than are drawn at random all are drawn."""
    if isinstance(n, int) and n > len(self) > 0 and has_table(stage) and called_by_user(stage.root):
        replace = args[1] if len(args) > 1 else named.get("replace", False)
        if not replace:
            stage.note("data", f"all {len(self)} rows were drawn where {n} are asked for")
            n = len(self)
    return original(self, n, *args, **named)


def _merged(
    stage: Stage, original: Any, left: Any, right: Any, how: Any = "inner", on: Any = None, *args: Any, **named: Any
) -> Any:
    """Every made table has every column that was asked of any: where two are joined by some, the others are taken from one, or
    each would be called by two names that no script knows."""
    if on is not None and "suffixes" not in named and has_table(stage) and called_by_user(stage.root):
        keys = on if isinstance(on, list | tuple) else [on]
        learned = stage.learned.get("columns", [])
        both = [name for name in learned if name not in keys and name in left.columns and name in right.columns]
        right = right.drop(columns=both)
    return original(left, right, how, on, *args, **named)


def _reads(stage: Stage, pandas: Any) -> None:
    """Says how a table is read, while it is: what is made then is written so."""

    def read(original: Any, path: Any, *args: Any, **named: Any) -> Any:
        sign = named.get("sep") or named.get("delimiter") or ("\t" if original.__name__ == "read_table" else ",")
        names = named.get("names")
        before = stage.table
        plain = isinstance(sign, str) and isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        given = tuple(names) if plain and names is not None else ()
        bare = named.get("header", 0) is None
        stage.table = (" " if sign == r"\s+" else str(sign)[:1] or ",", given, named.get("index_col") == 0, bare)
        try:
            return original(path, *args, **named)
        finally:
            stage.table = before

    for name in ("read_csv", "read_table"):
        stage.wrap(pandas, name, read)


def _filters(stage: Stage, series: Any) -> None:
    """Notes for which values the script keeps rows of a table, or has others in their place, where none has them: a column of
    splits or of folds, or names of classes of its own."""

    def note(column: Any, values: list[Any]) -> None:
        plain = isinstance(column, str) and bool(values) and all(isinstance(item, str | int) for item in values)
        if plain and called_by_user(stage.root):
            stage.filters.setdefault(column, {}).update(dict.fromkeys(values))

    def compare(original: Any, self: Any, other: Any, *args: Any, **named: Any) -> Any:
        answer = original(self, other, *args, **named)
        if not answer.any():
            note(self.name, [other] if isinstance(other, str | int) else list(other) if isinstance(other, _LISTS) else [])
        return answer

    def translate(original: Any, self: Any, arg: Any, *args: Any, **named: Any) -> Any:
        answer = original(self, arg, *args, **named)
        if isinstance(arg, dict) and not answer.notna().any():
            note(self.name, list(arg))
        return answer

    for name in ("isin", "eq", "__eq__"):
        stage.wrap(series, name, compare)
    stage.wrap(series, "map", translate)


def lesson(stage: Stage, error: BaseException, frames: list[Any]) -> bool | None:
    """What an error says of the columns that the next attempt's tables should have; None where it says nothing of them."""
    text = f"{type(error).__name__}: {error}"
    names = [frame.f_code.co_filename for frame in frames]
    if isinstance(error, KeyError) and (missing := _columns_in(frames)):
        known = stage.learned.get("columns", [])
        return stage.learn("columns", [*known, *(name for name in missing if name not in known)])
    if isinstance(error, KeyError | ValueError | AssertionError) and _MISSED_COLUMNS.search(text) and has_table(stage):
        known = stage.learned.get("columns", [])
        missed = [name for name in _QUOTED.findall(text)[:_MOST_COLUMNS] if name not in known]
        if missed and stage.learn("columns", [*known, *missed]):
            return True
    if isinstance(error, KeyError) and any("pandas" in name or "datasets" in name or name.endswith("csv.py") for name in names):
        return stage.add("columns", str(error.args[0]))
    if isinstance(error, ValueError) and _OTHER_COUNT.match(str(error)) and (given := _columns_in(frames, "new_labels")):
        return stage.learn(SET_COLUMNS, given)  # `table.columns = ["file", "class"]`, of one that has no header
    attribute = _ATTRIBUTE.match(str(error)) if isinstance(error, AttributeError) else None
    if attribute is not None and attribute[1] not in _GONE:
        return stage.add("columns", attribute[1])
    return None


def wider(stage: Stage, error: BaseException, own: list[Any]) -> bool:
    """Have the next attempt's tables as many columns as the script takes of a row by their place: `name, label, track = row`,
    `row[2]`. `own` are the user's frames in the traceback."""
    if not (isinstance(error, ValueError | IndexError) and own and has_table(stage)):
        return False
    code = own[-1].f_code
    rows = {name: value for name, value in own[-1].f_locals.items() if isinstance(value, list) and _is_row(value)}
    line = linecache.getline(code.co_filename, own[-1].f_lineno)
    if (told := _UNPACKED.search(str(error))) is not None:
        unnamed = "reader" in code.co_names and re.search(r"\bfor\b", line)  # `for name, label, track in reader`
        wanted = int(told[1]) if rows or unnamed else 0
    else:
        wanted = max((int(place) + 1 for name, place in _BY_PLACE.findall(line) if name in rows), default=0)
    short = max(map(len, rows.values()), default=0) < wanted <= _MOST_BY_PLACE
    return short and stage.learn(WIDTH, wanted)


def narrower(stage: Stage, error: BaseException, own: list[Any]) -> bool:
    """Have the next attempt's tables as few columns as the script takes rows apart into: `name, label = table.values[0]`."""
    told = _TOO_MANY.match(str(error)) if isinstance(error, ValueError) else None
    if told is None or not own or not has_table(stage):
        return False
    known = own[-1].f_locals
    values = [*known.values(), *getattr(known.get("self"), "__dict__", {}).values()]
    wider = any(len(shape) == 2 and shape[1] > int(told[1]) for shape in map(_shape, values))
    return wider and stage.learn(MOST_COLUMNS, int(told[1]))


def _shape(value: Any) -> tuple[int, ...]:
    """Rows and columns of a table or of the array of its values, whose columns differ in kind; of anything else none."""
    if type(value).__module__.partition(".")[0] == "pandas" or str(getattr(value, "dtype", "")) == "object":
        return tuple(getattr(value, "shape", ()))
    return ()


def _is_row(value: list[Any]) -> bool:
    return any(isinstance(item, str) and (item in PLAIN or MADE_NAME.fullmatch(item)) for item in value)


def has_table(stage: Stage) -> bool:
    """Whether a table was made in this attempt."""
    return any(item.edge == "data" and item.what.lower().endswith((*TABLES, *FRAMES)) for item in stage.standins)


def _columns_in(frames: list[Any], local: str = "key") -> list[str]:
    """The names of columns that pandas was just asked for together, and does not have all of, or that it was to give one."""
    for frame in reversed(frames):
        asked: Any = frame.f_locals.get(local) if "pandas" in frame.f_code.co_filename else None
        names: list[Any] = asked if isinstance(asked, list) else [*getattr(asked, "tolist", list)()]
        if names and len(names) <= _MOST_COLUMNS and all(isinstance(name, str) for name in names):
            return names
    return []
