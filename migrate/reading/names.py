"""What rules ask about names: what one really stands for, whether a fallback stands beside it, how an import is changed."""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .edits import Edit, Positions
from .nodes import is_docstring, is_future_import
from .scopes import Module, bound_names, import_module, root_of
from .statements import blocks

_RESCUES = frozenset(["ImportError", "ModuleNotFoundError", "AttributeError", "NameError"])
_BROAD = _RESCUES | {"Exception", "BaseException"}
_ASKED = re.compile(r"version|hasattr|TORCH_M|PY2|PY3|six\.PY", re.I)


def uses(module: Module, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """Where a file means the imported `name` ("torch.nn.Linear"), whatever it calls it.

    What only has the same name is left out: local variables, parameters, and packages that lie in the repository itself.
    """
    found = module.references.get(name, [])
    if found and not module.repository.has_package(name, module.path):
        yield from found


def meaning(module: Module, node: ast.AST | None) -> str | None:
    """The imported thing that an expression stands for: "torch.nn.Linear" for `nn.Linear`; None for what is no import."""
    root = root_of(node) if isinstance(node, ast.Name | ast.Attribute) else None
    if node is None or root is None or module.imported_as(root, node) is None:
        return None
    return module.expand(node)


def is_installed(name: str, root: Path) -> bool:
    """Whether a top-level import name leads to the standard library, or to what is installed outside of the repository."""
    spec = importlib.util.find_spec(name) if name not in sys.stdlib_module_names else None
    if spec is None:
        return name in sys.stdlib_module_names
    places = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or ())
    return not all(Path(place).resolve().is_relative_to(root.resolve()) for place in places)


def has_fallback(module: Module, node: ast.AST) -> bool:
    """Whether a file deals itself with the absence of something: `try` around it, or an `if` that asks for versions."""
    names = bound_names(node) if isinstance(node, ast.Import | ast.ImportFrom) else set()
    child, parent = node, module.parents.get(node)
    while parent is not None:
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test and _ASKED.search(ast.unparse(parent.test)):
            return True
        if isinstance(parent, ast.Try) and child in parent.body and any(_rescues(item, node) for item in parent.handlers):
            return True
        if isinstance(parent, ast.ExceptHandler):
            outer = module.parents[parent]
            assert isinstance(outer, ast.Try)
            first = {name for item in outer.body for name in bound_names(item)}
            if _catches(parent, _BROAD if names else _RESCUES) and (not names or names & first):
                return True
        child, parent = parent, module.parents.get(parent)
    return False


def _rescues(handler: ast.ExceptHandler, node: ast.AST) -> bool:
    kinds = _BROAD if isinstance(node, ast.Import | ast.ImportFrom) else _RESCUES
    return _catches(handler, kinds) and not any(isinstance(item, ast.Raise) for item in handler.body)


def _catches(handler: ast.ExceptHandler, kinds: frozenset[str]) -> bool:
    if handler.type is None:
        return kinds is _BROAD
    return any(isinstance(item, ast.Name) and item.id in kinds for item in ast.walk(handler.type))


def remove_import(module: Module, positions: Positions, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> Edit:
    """The edit that takes a name out of an import, or all of it; an import that was a block's only statement becomes `pass`."""
    if len(statement.names) > 1:
        return positions.leave_out(statement.names, [alias])[0]
    start, end = positions.span(statement)
    after = positions.starts[statement.end_lineno or statement.lineno]
    shared = positions.text[end:after].strip()  # a comment, or another statement on the line
    if shared or not positions.starts_line(statement) or is_alone(module, statement):
        return Edit(start, end, "pass")
    return Edit(positions.starts[statement.lineno - 1], after, "")


def is_alone(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement is the only one of its block, which cannot be empty, as a file can."""
    parent = module.parents[statement]
    return not isinstance(parent, ast.Module) and [statement] in blocks(parent)


def importing(module: Module, name: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias]]:
    """The import statements that bring in a dotted name as such, with their part for it."""
    for node in module.of_kind(ast.ImportFrom):
        source = import_module(node, module.path)
        for alias in node.names:
            if f"{source}.{alias.name}" == name:
                yield node, alias
    for plain in module.of_kind(ast.Import):
        yield from ((plain, alias) for alias in plain.names if alias.name == name)


def import_line(module: Module, positions: Positions, statement: str) -> Edit | None:
    """The edit that adds an import among those at the top of the file; None when the file has it there."""
    body = module.tree.body
    if any(isinstance(item, ast.Import | ast.ImportFrom) and ast.unparse(item) == statement for item in body):
        return None
    imports = [item for item in body if isinstance(item, ast.Import | ast.ImportFrom) and positions.starts_line(item)]
    later = [item for item in imports if not is_future_import(item)]
    if later:
        return positions.insert_before(later[0], statement)
    headers = [item for item in body if item in imports or is_docstring(item)]
    if headers:
        return positions.insert_after(headers[-1], statement)
    return positions.insert_before(body[0], statement)


def is_bound(module: Module, name: str, _seen: set[str] | None = None) -> bool:
    """Whether a file may mean something of its own by the name of a builtin, or have it from one of which it imports all. What
    lies outside of the repository may have any name."""
    bound = any(node.id == name and not isinstance(node.ctx, ast.Load) for node in module.of_kind(ast.Name))
    bound = bound or any(node.arg == name for node in module.of_kind(ast.arg))
    if bound or name in module.imports or name in module.definitions:
        return True
    seen = _seen if _seen is not None else set()
    seen.add(module.path)
    others = [module.repository.module(star, module.path) for star in module.star_imports]
    return any(other is None or (other.path not in seen and is_bound(other, name, seen)) for other in others)


def mentions(module: Module, name: str) -> bool:
    """Whether a file reads a name, or a dotted one, anywhere: in f-strings and in lists of exports, too."""
    root = name.partition(".")[0]
    return any(
        (isinstance(node, ast.Name) and node.id == root and ("." not in name or _is_read(module, node, name)))
        or (isinstance(node, ast.Constant) and node.value == name)
        for node in module.nodes
    )


def _is_read(module: Module, node: ast.AST, name: str) -> bool:
    for part in name.split(".")[1:]:
        node = module.parents[node]
        if not isinstance(node, ast.Attribute) or node.attr != part:
            return False
    return True
