"""What the code that runs in a frame says there: its statement, the test that ended it, the values of its names."""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
from collections.abc import Iterator
from typing import Any


def around(frame: Any) -> Iterator[ast.Assert | ast.If]:
    """The assertion that is the running line of a frame, or the branches in which this line gives up."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    kinds = (ast.Assert, ast.If) if re.match(r"\s*(raise|(sys\.|os\._)?exit|quit|parser\.error)\b", line) else ast.Assert
    yield from (node for node in _around_line(frame) if isinstance(node, kinds))


def held(frame: Any, node: ast.expr) -> Any:
    """The value of a name, of an attribute of one, or of a list of constants, where the frame has it."""
    match node:
        case ast.Name(id=name):
            return frame.f_locals.get(name, frame.f_globals.get(name))
        case ast.Attribute(value=ast.Name() as owner, attr=name):
            return vars(held(frame, owner)).get(name) if hasattr(held(frame, owner), "__dict__") else None
        case ast.Call(func=ast.Attribute(value=owner, attr="keys"), args=[]):
            return held(frame, owner)
        case ast.List() | ast.Tuple() | ast.Set():
            return [item.value for item in node.elts if isinstance(item, ast.Constant)]
    return None


def is_bound(frame: Any, part: ast.Name | ast.Attribute) -> bool:
    """Whether a frame has a name of its own, or what an attribute is one of."""
    name = part.id if isinstance(part, ast.Name) else part.value.id if isinstance(part.value, ast.Name) else ""
    return name in frame.f_locals


def running(frame: Any) -> str:
    """The statement that runs, where nothing else is in it; else its line."""
    path = frame.f_code.co_filename
    for node in _around_line(frame):
        if not hasattr(node, "body"):
            return " ".join(linecache.getlines(path)[node.lineno - 1 : node.end_lineno])
    return linecache.getline(path, frame.f_lineno)


def _around_line(frame: Any) -> Iterator[ast.stmt]:
    """The statements in which the running line of a frame is, the outermost first; none where its file does not parse."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))):
            if isinstance(node, ast.stmt) and node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
                yield node
