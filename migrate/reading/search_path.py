"""Folders that a file puts on Python's search path, as far as can be read: `sys.path.insert(0, join(here, "..", "lib"))`."""

import ast
import posixpath
from collections.abc import Iterator, Sequence

__all__ = ["added_folders"]

_SAME = frozenset(
    ["abspath", "realpath", "normpath", "resolve", "absolute", "as_posix", "str", "Path", "PurePath", "expanduser"]
)
_MOST_STEPS, _DEEPEST = 40, 60  # steps for each name, and expressions inside each other: a stranger's file may be made to stall


def added_folders(tree: ast.Module, path: str) -> Iterator[str]:
    """The folders, relative to the repository's root, that the file at `path` adds; those outside of it are left out.

    One that is written as relative to the working directory is meant from the file's folder or from the root: both are given.
    """
    adders = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and any(map(_changes_path, ast.walk(node)))
    }
    reader = _Reader(tree, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (_changes_path(node) or (isinstance(node.func, ast.Name) and node.func.id in adders)):
            values = [item for value in node.args for item in (value.elts if isinstance(value, ast.List) else [value])]
            for value in values:
                if (found := reader.read(value)) is not None:
                    bases = ("",) if found.startswith("/") else (posixpath.dirname(path), "")
                    yield from (folder for base in bases if (folder := _inside(posixpath.join(base, found.lstrip("/")))))


def _changes_path(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr in ("insert", "append", "extend") and ast.unparse(node.func.value) == "sys.path"


def _names(name: str, node: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _inside(folder: str) -> str | None:
    """The folder in its shortest form; None for the root itself, which is searched anyway, and for what lies outside."""
    short = posixpath.normpath(folder)
    return None if short == "." or short.startswith("..") else short


class _Reader:
    """Evaluates expressions of paths. What starts with "/" is seen from the repository's root, the rest from somewhere."""

    def __init__(self, tree: ast.Module, path: str) -> None:
        self._file = f"/{path}"
        self._steps = self._depth = 0
        # `root = root.parent`, until a folder is found, says nothing of where it begins.
        self._bound: dict[str, ast.expr] = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and not _names(target.id, node.value)
        }

    def read(self, node: ast.expr) -> str | None:
        """The path that an expression stands for; None where that cannot be told."""
        self._steps += 1
        if self._steps > _MOST_STEPS * (1 + len(self._bound)) or self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            return self._read(node)
        finally:
            self._depth -= 1

    def _read(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Constant):
            # An absolute path of the author's machine says nothing here.
            return node.value if isinstance(node.value, str) and not node.value.startswith("/") else None
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return self._file
            bound = self._bound.get(node.id)
            return self.read(bound) if bound is not None else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined([node.left, node.right])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):  # here + "/../lib"
            left, right = self.read(node.left), node.right.value if isinstance(node.right, ast.Constant) else None
            return left + right if left is not None and isinstance(right, str) else None
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            return self._above(node.value, 1)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self._above(node.value.value, index + 1) if isinstance(index, int) and index >= 0 else None
        return self._call(node) if isinstance(node, ast.Call) else None

    def _call(self, node: ast.Call) -> str | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("getcwd", "cwd"):
            return "/"
        if name == "dirname" and node.args:
            return self._above(node.args[0], 1)
        if name == "join" and node.args:
            return self._joined(node.args)
        if name == "joinpath" and isinstance(node.func, ast.Attribute):
            return self._joined([node.func.value, *node.args])
        if name in _SAME:
            inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
            return self.read(inner) if inner is not None else None
        return None

    def _above(self, node: ast.expr, levels: int) -> str | None:
        found = self.read(node)
        for _ in range(levels):
            found = posixpath.dirname(posixpath.normpath(found)) if found is not None else None
        return found

    def _joined(self, parts: Sequence[ast.expr]) -> str | None:
        found = [self.read(part) for part in parts]
        known = [part for part in found if part is not None]
        if len(known) < len(found):
            return None
        return posixpath.join(known[0], *(part.lstrip("/") for part in known[1:]))
