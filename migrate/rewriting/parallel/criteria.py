"""Whether a loss is the mean over the rows of a batch: then its gradient over all ranks' rows is the mean of the ranks'."""

import ast

from ...reading.names import meaning
from ...reading.nodes import inside
from ...reading.scopes import Module
from ..training_loops import LoopStep, changing
from .flows import Flow, bindings, itself, place_of, together

_FUNCTIONS = frozenset(
    f"torch.nn.functional.{name}"
    for name in (
        "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
    )
)  # fmt: skip
_RANKS = "torch.distributed.get_world_size"
_CLASSES = frozenset(
    f"torch.nn.{name}"
    for name in ("CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss")
)


def why_no_mean(module: Module, step: LoopStep, flows: list[Flow]) -> str | None:
    """Why a step's loss may be something else than the mean over the rows; None where it is that."""
    if _is_mean(module, step.value, flows):
        return None
    return (
        f"the loss, {ast.unparse(step.value)}, is not known to be a plain mean over the rows, as nn.CrossEntropyLoss() is, "
        "without weights, smoothing or another reduction"
    )


def why_uneven(module: Module, step: LoopStep) -> str | None:
    """Why what a loss is divided by may be another number for the rows of all ranks than for those of one; None where not."""
    divisors = [item for item in (step.divisor, step.backward[0].divide) if item is not None]
    for divisor in divisors:
        calls = [call for call in inside(divisor, ast.Call) if meaning(module, call.func) != _RANKS]
        moving = [name.id for name in inside(divisor, ast.Name) if name.id in changing(step.loop)]
        if calls or moving:
            return f"the loss is divided by {ast.unparse(divisor)}, which may depend on the rows"
    return None


def _is_mean(module: Module, value: ast.expr, flows: list[Flow]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if meaning(module, value.func) in _FUNCTIONS:
        return len(value.args) == 2 and _plain(value)
    if isinstance(value.func, ast.Call):  # nn.CrossEntropyLoss()(outputs, targets)
        return not value.keywords and _is_criterion(module, value.func)
    place = place_of(module, value.func)
    if place is None or value.keywords:
        return False
    made = [_value_of(module, node) for item in together(place, flows) for node in bindings(module, item)]
    tied = together(place, flows)
    stores = [node for node in module.of_kind(ast.Attribute) if isinstance(node.ctx, ast.Store)]
    if any(place_of(module, node.value) in tied for node in stores):
        return False  # criterion.reduction = "sum"
    kept = [itself(module, item) if item is not None else None for item in made]
    sources = [item for item in kept if item is None or place_of(module, item) is None or meaning(module, item) is not None]
    return bool(sources) and all(item is not None and _is_criterion(module, item) for item in sources)


def _value_of(module: Module, node: ast.AST) -> ast.expr | None:
    statement = module.parents.get(node)
    return statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _is_criterion(module: Module, value: ast.expr) -> bool:
    if meaning(module, value) in _FUNCTIONS:
        return True
    return isinstance(value, ast.Call) and meaning(module, value.func) in _CLASSES and not value.args and _plain(value)


def _plain(call: ast.Call) -> bool:
    return all(
        item.arg == "reduction" and isinstance(item.value, ast.Constant) and item.value.value == "mean"
        for item in call.keywords
    )
