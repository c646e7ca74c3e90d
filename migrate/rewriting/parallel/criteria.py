"""Whether a loss is the mean over the rows of a batch: then its gradient over all ranks' rows is the mean of the ranks'."""

import ast

from ...reading.names import meaning
from ...reading.scopes import Module
from ..training_loops import LoopStep
from .flows import Flow, bindings, place_of, together

_FUNCTIONS = frozenset(
    f"torch.nn.functional.{name}"
    for name in (
        "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
    )
)  # fmt: skip
_CLASSES = frozenset(
    f"torch.nn.{name}"
    for name in ("CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss")
)
_MOVES = frozenset(["to", "cuda", "cpu"])


def why_no_mean(module: Module, step: LoopStep, flows: list[Flow]) -> str | None:
    """Why a step's loss may be something else than the mean over the rows; None where it is that."""
    value = step.value
    if step.division is not None:
        return None if _is_mean(module, value, flows) else _told(value)
    return None if _is_mean(module, value, flows) else _told(value)


def _told(value: ast.expr) -> str:
    return (
        f"the loss, {ast.unparse(value)}, is not known to be a plain mean over the rows, as nn.CrossEntropyLoss() is, without "
        "weights, smoothing or another reduction"
    )


def _is_mean(module: Module, value: ast.expr, flows: list[Flow]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if meaning(module, value.func) in _FUNCTIONS:
        return len(value.args) == 2 and _plain(value)
    place = place_of(module, value.func)
    if place is None or value.keywords:
        return False
    made = [_value_of(module, node) for item in together(place, flows) for node in bindings(module, item)]
    sources = [item for item in made if place_of(module, item) is None] if None not in made else [None]
    return bool(sources) and all(item is not None and _is_criterion(module, item) for item in sources)


def _value_of(module: Module, node: ast.AST) -> ast.expr | None:
    statement = module.parents.get(node)
    return statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _is_criterion(module: Module, value: ast.expr) -> bool:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    if meaning(module, value) in _FUNCTIONS:
        return True
    return isinstance(value, ast.Call) and meaning(module, value.func) in _CLASSES and not value.args and _plain(value)


def _plain(call: ast.Call) -> bool:
    return all(
        item.arg == "reduction" and isinstance(item.value, ast.Constant) and item.value.value == "mean" for item in call.keywords
    )


