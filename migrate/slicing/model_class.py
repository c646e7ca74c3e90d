"""One nn.Module class of a repository, with what it has of its bases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..reading.nodes import inside
from ..reading.scopes import Function, Module, last_name, root_of


@dataclass(eq=False)
class ModelClass:
    """One nn.Module class at module level of a file."""

    module: Module
    node: ast.ClassDef
    bases: list[ModelClass] = field(default_factory=list)
    lightning: bool = False
    parts: set[ModelClass] = field(default_factory=set)
    """Module classes of the repository that its body mentions."""

    def methods(self, name: str, depth: int = 0) -> Function | None:
        for item in self.node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name:
                return item
        for base in self.bases if depth < 20 else ():
            if (found := base.methods(name, depth + 1)) is not None:
                return found
        return None

    def with_parts(self) -> set[ModelClass]:
        """It, with its bases, its parts and theirs."""
        seen: set[ModelClass] = set()
        stack = [self]
        while stack:
            part = stack.pop()
            if part not in seen:
                seen.add(part)
                stack.extend(part.parts | set(part.bases))
        return seen

    def own_nodes(self, depth: int = 0) -> Iterator[ast.AST]:
        yield from ast.walk(self.node)
        for base in self.bases if depth < 20 else ():
            yield from base.own_nodes(depth + 1)


def makes_itself(node: ast.ClassDef, name: str) -> bool:
    """Whether a class has a class method of this name that calls the class."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == name and item.args.args:
            marked = any(last_name(decorator) == "classmethod" for decorator in item.decorator_list)
            own = (item.args.args[0].arg, node.name)
            return marked and any(root_of(inner.func) in own for inner in inside(item, ast.Call))
    return False
