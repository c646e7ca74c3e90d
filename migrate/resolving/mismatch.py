"""Training and evaluation that normalize differently: a model should be served with the numbers it was trained with."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..reading.scopes import Module, dotted, last_name
from ..survey.transforms import is_composed, is_random

Numbers = tuple[tuple[float, ...], tuple[float, ...]]


def trained_otherwise(evaluation: Numbers, modules: Iterable[Module]) -> tuple[str, int, Numbers] | None:
    """Where a training transform (one that augments) states another mean or std than `evaluation`, and which; None where all
    that can be read agrees. Only numbers that stand in the source are compared; `Normalize` and `A.Normalize` alike."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Call) and is_composed(node) and is_random(node):
                stated = [found for inner in ast.walk(node) if (found := _normalization(module, inner)) is not None]
                if len(stated) == 1 and not _alike(stated[0], evaluation):
                    return module.path, node.lineno, stated[0]
    return None


def _normalization(module: Module, node: ast.AST) -> Numbers | None:
    if isinstance(node, ast.Name):  # normalize = transforms.Normalize(...), used in both
        values = _bound(module, node.id)
        return _normalization(module, values[0]) if len(values) == 1 and isinstance(values[0], ast.Call) else None
    if not isinstance(node, ast.Call) or last_name(node.func) != "Normalize":
        return None
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    mean = given.get("mean", node.args[0] if node.args else None)
    std = given.get("std", node.args[1] if len(node.args) > 1 else None)
    numbers = _numbers(module, mean), _numbers(module, std)
    return (numbers[0], numbers[1]) if numbers[0] is not None and numbers[1] is not None else None


def _numbers(module: Module, node: ast.expr | None, depth: int = 0) -> tuple[float, ...] | None:
    if isinstance(node, ast.Name) and depth < 3:
        values = _bound(module, node.id)
        return _numbers(module, values[0], depth + 1) if len(values) == 1 else None
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError):
        return None
    if isinstance(value, int | float):
        return (float(value),)
    if isinstance(value, list | tuple) and value and all(isinstance(item, int | float) for item in value):
        return tuple(float(item) for item in value)
    return None


def _bound(module: Module, name: str) -> list[ast.expr]:
    return [
        node.value
        for node in module.nodes
        if isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)
    ]


def _alike(one: Numbers, other: Numbers) -> bool:
    """Equal to the digits that people round such numbers to."""
    for pair in zip(one, other, strict=True):
        count = max(map(len, pair))
        mine, theirs = (values * count if len(values) == 1 else values for values in pair)
        if len(mine) != len(theirs) or any(abs(a - b) > 6e-4 for a, b in zip(mine, theirs, strict=True)):
            return False
    return True
