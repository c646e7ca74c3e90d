"""The classes that the outputs of notebooks show: what `dataset.classes` was when it was run last, which no source states."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ....trust import open_regular

_MOST_FILES, _MOST_BYTES = 20, 20_000_000
_MOST_SHOWN = 200_000
"""Characters of a cell's output in which a table is looked for."""
_OF_DATA = frozenset(["classes", "class_to_idx"])
"""What torchvision's data sets call the names of their classes, in the order of their numbers, and those numbers."""
_BY_CUSTOM = frozenset(["class_names", "class_to_idx", "idx_to_class"])
"""What everybody calls them; `classes` alone may as well be the best of one answer."""
_PARTS = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[\[\]{}]")


def shown_classes(root: Path, script: str) -> tuple[str, ...] | None:
    """The names of the classes that a notebook's outputs show, or for a script those on which all notebooks beside it agree."""
    if script.endswith(".ipynb"):
        return _shown(root / script)
    paths = sorted(path for path in root.rglob("*.ipynb") if not any(map(_is_hidden, path.relative_to(root).parts)))
    found = {names for path in paths[:_MOST_FILES] if (names := _shown(path)) is not None}
    return found.pop() if len(found) == 1 else None


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _shown(path: Path) -> tuple[str, ...] | None:
    cells = list(_cells(path))
    named = {name for tree, _ in cells for name in _bound(tree)} | _BY_CUSTOM
    tables = (_table(text) for tree, text in cells if _shows(tree, named) for text in _literals(text))
    return next((names for names in tables if names is not None), None)


def _cells(path: Path) -> Iterator[tuple[ast.Module, str]]:
    """The code cells that Python can read, without magics, and what their outputs say."""
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError, TypeError, LookupError):
        with open_regular(path) as file:
            notebook = json.loads(file.read(_MOST_BYTES))
        for cell in notebook["cells"]:
            if cell.get("cell_type") != "code" or not cell.get("outputs"):
                continue
            lines = _text(cell["source"]).splitlines()
            with contextlib.suppress(SyntaxError):
                code = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)
                yield ast.parse(code), "\n".join(map(_said, cell["outputs"]))[:_MOST_SHOWN]


def _said(output: dict[str, Any]) -> str:
    return _text(output.get("text") or output.get("data", {}).get("text/plain", ""))


def _text(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def _bound(tree: ast.Module) -> Iterator[str]:
    """Names of a data set's classes: `names = data.classes`, `table = {v: k for k, v in data.class_to_idx.items()}`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _mentions(node.value, frozenset()):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _shows(tree: ast.Module, named: frozenset[str] | set[str]) -> bool:
    """Whether a cell prints such a name, or ends with it."""
    prints = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "display")
    ]
    last = tree.body[-1] if tree.body else None
    return any(_mentions(node, named) for node in (*prints, *([last.value] if isinstance(last, ast.Expr) else [])))


def _mentions(node: ast.AST, named: frozenset[str] | set[str]) -> bool:
    """Whether the whole of the classes stands in an expression, and not what is taken out of them by a number."""
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len"):
        return False
    of_data = isinstance(node, ast.Attribute) and node.attr in _OF_DATA
    return (
        of_data
        or (isinstance(node, ast.Name) and node.id in named)
        or any(_mentions(child, named) for child in ast.iter_child_nodes(node))
    )


def _literals(text: str) -> Iterator[str]:
    """The lists and tables in a text that lie in no other, and in a tuple's too."""
    opened: list[int] = []
    for part in _PARTS.finditer(text):
        if part[0] in "[{":
            opened.append(part.start())
        elif part[0] in "]}" and opened:
            begin = opened.pop()
            if not opened:
                yield text[begin : part.end()]


def _table(text: str) -> tuple[str, ...] | None:
    """The names in the order of their numbers, of `["cat", "dog"]`, `{0: "cat", 1: "dog"}` or `{"cat": 0, "dog": 1}`."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if isinstance(value, dict) and all(isinstance(item, int | str) for pair in value.items() for item in pair):
        turned = value if all(type(key) is int for key in value) else {number: name for name, number in value.items()}
        if len(turned) != len(value) or set(turned) != set(range(len(value))):
            return None
        value = [turned[number] for number in range(len(turned))]
    texts = isinstance(value, list) and len(value) > 1 and all(isinstance(name, str) for name in value)
    return tuple(value) if texts and len(set(value)) == len(value) else None
