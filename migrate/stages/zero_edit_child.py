"""Run a script with other sources in place of some files, else as `python SCRIPT ARGS...` does: the child side of `zero_edit`.

    python zero_edit_child.py DESCRIPTOR SCRIPT ARGS...

The descriptor holds JSON: {real path: {"before": text, "after": text}}. A file of the table is compiled from its new text,
wherever it is imported from, but with the line numbers of the old one, so that tracebacks, warnings and `inspect` show the
lines that the user wrote. Nothing is patched: sources are exchanged where the import system reads them. Standard library only.
"""

from __future__ import annotations

import ast
import difflib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

Table = dict[str, dict[str, str]]


def main() -> None:
    descriptor, script, *arguments = sys.argv[1:]
    with open(int(descriptor), "rb") as file:
        table: Table = json.loads(file.read().decode("utf-8", "surrogatepass"))
    # As the interpreter leaves it for `python SCRIPT ARGS...`.
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    sys.meta_path.insert(0, Finder(table))
    module = types.ModuleType("__main__")
    path = os.path.abspath(script)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __loader__=loader, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    own = table.get(os.path.realpath(script))
    if own is not None:
        code = compiled(own["before"], own["after"], path)
    else:
        with open(path, "rb") as source:
            code = compile(source.read(), path, "exec", dont_inherit=True)
    sys.excepthook = _report
    exec(code, vars(module))  # noqa: S102  what the user asked to run


def _report(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """An uncaught error as the interpreter reports it, without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


class Finder(importlib.abc.MetaPathFinder):
    """Gives modules whose file is in the table a loader of their new text; all others are found as always."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        entry = self._table.get(os.path.realpath(spec.origin))
        if entry is None:
            return None
        spec.loader = Loader(spec.loader.name, spec.origin, entry)
        spec.cached = None
        return spec


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles the new text under the name of the old file; `get_source` still gives what is on disk."""

    def __init__(self, name: str, path: str, entry: dict[str, str]) -> None:
        super().__init__(name, path)
        self._entry = entry

    def get_code(self, fullname: str) -> types.CodeType:
        return compiled(self._entry["before"], self._entry["after"], self.path)


def compiled(before: str, after: str, path: str) -> types.CodeType:
    """The code of `after` with each line numbered as the line of `before` that it comes from.

    A line that was added has the number of the line that it stands before; columns are kept only where lines are equal.
    """
    old, new = (list(io.StringIO(text, newline=None)) for text in (before, after))
    numbers: list[int] = []
    same: list[bool] = []
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        for index in range(j2 - j1):
            # In a block that changed, the last lines correspond: what is added stands above what it is added to.
            place = i1 + index if kind == "equal" else max(i1, i2 - (j2 - j1) + index)
            numbers.append(min(place, max(len(old) - 1, 0)) + 1)
            same.append(kind == "equal")
    tree = ast.parse(after, filename=path)
    for node in ast.walk(tree):
        _renumber(node, numbers, same, old)
    return compile(tree, path, "exec", dont_inherit=True)


def _renumber(node: Any, numbers: list[int], same: list[bool], old: list[str]) -> None:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None or last > len(numbers):
        return
    node.lineno, node.end_lineno = numbers[first - 1], max(numbers[first - 1], numbers[last - 1])
    if not (same[first - 1] and same[last - 1]):  # whole lines, for which a traceback draws no marks
        node.col_offset = 0
        node.end_col_offset = len(old[node.end_lineno - 1].rstrip("\n").encode()) if old else 0


if __name__ == "__main__":
    main()
