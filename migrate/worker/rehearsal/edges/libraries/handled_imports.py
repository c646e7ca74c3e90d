"""Libraries for whose absence a script has a handler, and whose names it uses all the same: `class Pipe(Pipeline)`."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import re
import traceback

from ...places import is_users
from ...stage import Stage

_NAME = re.compile(r"name '(\w+)' is not defined")


def missed(stage: Stage, error: BaseException) -> str | None:
    """The library, or the part of one, from which a name that is not defined would have come; None for other errors."""
    found = _NAME.match(str(error)) if isinstance(error, NameError) else None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if found is None or not frames or not is_users(frames[-1].f_code.co_filename, stage.root):
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(frames[-1].f_code.co_filename)))
    except SyntaxError:
        return None
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    modules = [module for node in tries for part in node.body for module, names in _imported(part) if found[1] in names]
    return next(filter(None, map(_missing, modules)), None)


def _imported(node: ast.stmt) -> list[tuple[str, set[str]]]:
    """The modules that a statement imports, each with the names that it binds."""
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [(node.module, {alias.asname or alias.name for alias in node.names})]
    if isinstance(node, ast.Import):
        return [(alias.name, {alias.asname or alias.name.partition(".")[0]}) for alias in node.names]
    return []


def _missing(module: str) -> str | None:
    """The shortest part of a module's name that is not installed."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        try:
            if importlib.util.find_spec(name) is None:
                return name
        except (ImportError, ValueError):
            return name
    return None
