"""Copies of a program's statements and expressions that call, or are called, something else."""

import ast
import copy
from typing import TypeVar

from ..reading.calls import bind
from ..reading.nodes import inside
from ..reading.scopes import last_name
from .classes import ClassReduction

Node = TypeVar("Node", bound=ast.AST)


class NarrowedCalls:
    """Hands constructors of reduced classes only the arguments they still take."""

    def __init__(self, reductions: dict[str, ClassReduction]) -> None:
        self.reductions = reductions

    def __call__(self, statement: ast.stmt) -> ast.stmt:
        calls = [self.reductions.get(last_name(node.func)) for node in inside(statement, ast.Call)]
        return self.narrowed(statement) if any(item is not None and item.built is not None for item in calls) else statement

    def narrowed(self, node: Node) -> Node:
        """A copy, of a statement or of an expression that stands in no statement yet."""
        clone = copy.deepcopy(node)
        for call in inside(clone, ast.Call):
            reduction = self.reductions.get(last_name(call.func))
            if reduction is None or reduction.built is None:
                continue
            if reduction.init is not None and reduction.parameters is not None:
                given = bind(reduction.init, call, skip=1)
                call.args = []
                call.keywords = [ast.keyword(name, given[name]) for name in reduction.parameters if name in given]
        return ast.fix_missing_locations(clone)


class RenamedClasses(ast.NodeTransformer):
    """Renames classes, and takes them out of the imports that brought them."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node) if node.id in self.names else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        node.names = [alias for alias in node.names if (alias.asname or alias.name) not in self.names]
        return node if node.names else None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.stmt | ast.ExceptHandler) and getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[union-attr]
        return node


class RenamedCalls(ast.NodeTransformer):
    """Lets some calls call something else."""

    def __init__(self, names: dict[ast.Call, str]) -> None:
        self.names = names

    def copied(self, node: Node) -> Node:
        if not self.names:
            return node
        memo: dict[int, object] = {}
        clone = copy.deepcopy(node, memo)
        self.names = {memo[id(call)]: name for call, name in self.names.items()}  # type: ignore[misc]
        made: Node = self.visit(clone)
        return ast.fix_missing_locations(made)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if node in self.names:
            node.func = ast.Name(self.names[node], ast.Load())
        return node
