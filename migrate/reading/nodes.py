"""Walks through pieces of syntax, typed by the kind of node, and what calls, functions and names have in them."""

import ast
from collections.abc import Iterator
from typing import TypeVar

from .scopes import Function, dotted

_Node = TypeVar("_Node", bound=ast.AST)


def inside(node: ast.AST | None, kind: type[_Node]) -> Iterator[_Node]:
    """The nodes of one kind in a piece of code, the piece itself included, in the order of `ast.walk`; none in None."""
    found: list[ast.AST] = [node] if node is not None else []
    for item in found:  # which grows meanwhile: half of all reading is this walk, and ast.walk takes half as long again
        for name in item._fields:
            value = getattr(item, name, None)
            if isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
        if isinstance(item, kind):
            yield item


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """The values that a call hands over, by position and by keyword."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def keyword_of(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument of that name."""
    return next((item for item in call.keywords if item.arg == name), None)


def text_of(node: ast.AST | None) -> str | None:
    """The text of a string that is written out."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def defaults_of(function: Function) -> dict[str, ast.expr]:
    """The default values of a function's parameters by name."""
    signature = function.args
    positional = [*signature.posonlyargs, *signature.args][::-1]
    found = {argument.arg: value for argument, value in zip(positional, signature.defaults[::-1], strict=False)}
    keywords = zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    return dict(reversed(found.items())) | {argument.arg: value for argument, value in keywords if value is not None}


def required_of(function: Function) -> list[str]:
    """The parameters that a call must give: those without a default, `*args` and `**kwargs` aside."""
    signature, defaults = function.args, defaults_of(function)
    named = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in defaults]


def values_of(scope: ast.AST | None, name: str) -> list[ast.expr]:
    """What the assignments in a piece of code give to a name, or to an attribute as written."""
    return [node.value for node in inside(scope, ast.Assign) if any(dotted(target) == name for target in node.targets)]


def is_docstring(item: ast.stmt) -> bool:
    return isinstance(item, ast.Expr) and text_of(item.value) is not None


def is_future_import(item: ast.stmt) -> bool:
    return isinstance(item, ast.ImportFrom) and item.module == "__future__"


def leaves_torch(function: ast.AST) -> bool:
    """Whether a function brings tensors to NumPy or back-propagates, so that no graph goes through it."""
    calls = [call.func for call in inside(function, ast.Call)]
    return any(isinstance(callee, ast.Attribute) and callee.attr in ("numpy", "backward") for callee in calls)
