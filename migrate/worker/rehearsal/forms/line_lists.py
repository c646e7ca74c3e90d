"""Lists of images with their classes, a line each: what stands between the two, and whether classes have numbers or names."""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import re
from collections.abc import Sequence
from typing import Any

from .. import hints
from ..making import LINE_NAMES, LINE_SIGN, LISTS
from ..stage import Stage

_SIGNS = (",", "\t", ";", "|", ":", "::", ", ", " ", "  ")
_TAKEN_APART = re.compile(
    r"list index out of range|(not enough|too many) values to unpack"
    r"|(invalid literal for int|could not convert string to float).*'image_\d{4}(\.\w+)? \S+'"
)
_LINE = re.compile(r"image_\d{4}(\.\w+)? \S+$")
"""A line that was made, taken for a path as a whole: it was to be taken apart at another sign."""
_UNKNOWN = re.compile(r"'(\d+)' is not in (list|tuple)|tuple\.index\(x\)|list\.index\(x\)")


def lesson(stage: Stage, error: BaseException, own: Sequence[Any], *, empty: bool) -> bool:
    """How the lines of the lists that the next attempt makes are to be written.

    `own` are the user's frames in the traceback; `empty` is whether the error says that nothing was found.
    """
    if not any(item.edge == "data" and item.what.lower().endswith(LISTS) for item in stage.standins):
        return False
    if own and isinstance(error, IndexError | ValueError) and _TAKEN_APART.search(str(error)):
        sign = next(filter(None, map(_sign, reversed(own))), None)
        return sign is not None and sign != stage.learned.get(LINE_SIGN, " ") and stage.learn(LINE_SIGN, sign)
    if own and isinstance(error, FileNotFoundError) and _LINE.search(str(error.filename)):
        return _take_apart(stage, own)
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    number = isinstance(key, str) and key.isdigit()
    looked_up = number or (isinstance(error, ValueError) and _UNKNOWN.search(str(error)) is not None)
    passed_over = empty and hints.numbers_names(stage.root, stage.request.script)
    return (looked_up or passed_over) and stage.learn(LINE_NAMES, True)


def _take_apart(stage: Stage, own: Sequence[Any]) -> bool:
    """Write lines with the first sign but a blank at which the files that could not go on take something apart."""
    for path in dict.fromkeys(frame.f_code.co_filename for frame in reversed(own)):
        with contextlib.suppress(SyntaxError):
            nodes = ast.walk(ast.parse("".join(linecache.getlines(path))))
            signs = (_parted_at(node) for node in nodes if isinstance(node, ast.Call))
            if (sign := next((sign for sign in signs if sign and sign.strip(" ")), None)) is not None:
                return stage.learn(LINE_SIGN, sign)
    return False


def _sign(frame: Any) -> str | None:
    """The sign at which the running function takes lines apart, at the running line or before it."""
    lines = linecache.getlines(frame.f_code.co_filename)
    first, last = frame.f_code.co_firstlineno, frame.f_lineno
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and first <= node.lineno <= last]
    found = ((node.lineno, sign) for node in calls if (sign := _parted_at(node)) is not None)
    return max(found, default=(0, None), key=lambda item: item[0])[1]


def _parted_at(call: ast.Call) -> str | None:
    """`,` of `line.split(",")` and of `csv.reader(file)`; None of a call that takes nothing apart, or a path."""
    words = ast.unparse(call.func)
    given = {item.arg: item.value for item in call.keywords}
    if words.endswith(("reader", "DictReader")):
        told = given.get("delimiter", ast.Constant(","))
    elif words.endswith((".split", ".rsplit", ".partition", ".rpartition")):
        told = next(itertools.chain(call.args, [given.get("sep", ast.Constant(" "))]))
    else:
        return None
    return told.value if isinstance(told, ast.Constant) and told.value in _SIGNS else None
