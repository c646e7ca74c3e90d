"""Small questions about statements, and copies of them with other parts."""

import ast
import copy
from collections.abc import Sequence
from typing import TypeVar

from .scopes import Definition, Module, NameUse, dotted, targets_of

_Node = TypeVar("_Node", bound=ast.AST)
_ALIAS_METHODS = frozenset(["to", "cuda", "cpu", "eval", "train", "float", "half", "requires_grad_", "module"])
_GROUPS = frozenset(["add_argument_group", "add_mutually_exclusive_group", "add_subparsers", "add_parser"])


def store_targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign():
            return [target for item in statement.targets for target in targets_of(item)]
        case ast.AugAssign() | ast.AnnAssign():
            return list(targets_of(statement.target))
        case ast.Delete():
            return [target for item in statement.targets for target in targets_of(item)]
    return []


def is_plain_attribute(statement: ast.Assign, place: NameUse) -> bool:
    return any(dotted(target) == f"{place[0]}.{place[1]}" for target in statement.targets)


def is_main_guard(statement: ast.If) -> bool:
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    return "__name__" in names


def blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The lists of statements right inside a node, those of its handlers and cases included."""
    blocks = [getattr(node, name) for name in ("body", "orelse", "finalbody") if isinstance(getattr(node, name, None), list)]
    return blocks + [part.body for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]]


def block_of(module: Module, statement: ast.stmt) -> list[ast.stmt]:
    """The list of statements in which one stands."""
    return next(block for block in blocks(module.parents[statement]) if any(item is statement for item in block))


def with_fields(node: _Node, **fields: object) -> _Node:
    clone = copy.copy(node)
    for name, value in fields.items():
        setattr(clone, name, value)
    return ast.fix_missing_locations(clone)


def local_definitions(body: Sequence[ast.stmt]) -> dict[str, Definition]:
    return {item.name: item for item in body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def aliases(body: Sequence[ast.stmt]) -> dict[str, set[str]]:
    """Names that may stand for the same object: `raw = model.module`, `group = parser.add_argument_group()`, `a = b = C()`."""
    families: dict[str, set[str]] = {}
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        stack.extend(ast.iter_child_nodes(node))
        if not isinstance(node, ast.Assign) or not all(isinstance(target, ast.Name) for target in node.targets):
            continue
        values = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
        first, *others = [target.id for target in node.targets if isinstance(target, ast.Name)]
        for other in [*others, *(aliased(value) for value in values)]:
            if other is not None and other != first:
                family = families.get(other, {other}) | families.get(first, {first})
                for name in family:
                    families[name] = family
    return families


def aliased(node: ast.expr) -> str | None:
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ALIAS_METHODS | _GROUPS:
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in _ALIAS_METHODS:
            node = node.value
        else:
            return node.id if isinstance(node, ast.Name) else None
