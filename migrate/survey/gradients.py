"""What code does with gradients: it trains by them, looks at them, or does without."""

import ast
import re
from collections.abc import Iterator

from ..reading.nodes import arguments_of, inside
from ..reading.scopes import Function, Module, last_name
from ..reading.statements import block_of
from ..slicing.side_effects import TRAINING_CALLS

_LOOKS_AT_GRADIENTS = frozenset(
    ["grad", "requires_grad_", "retain_grad", "register_full_backward_hook", "register_backward_hook", "register_hook"]
)
_UPDATES = frozenset(["step", "sub_", "add_", "addcmul_", "addcdiv_", "copy_", "training_step"])
"""Calls that change weights after `backward()`."""
_LOSS = re.compile(r"loss|err(or)?\b|cost|crit|objective|energy|entropy|nll|mse|bce|_div|penalt|total|\bJ\b", re.I)
_TRAINS = re.compile(r"(^|_)(train|training|fit)(_|$)", re.I)
_CRITERION = re.compile(r"loss|criteri|entropy|nll", re.I)
_NO_GRAD = frozenset(["no_grad", "inference_mode"])


def learns(module: Module, scope: ast.AST | None) -> bool:
    """Whether a piece of code trains by gradients that it computes itself, or has a training graph do it."""
    return any(not explains(module, call) for call in _back_propagating(scope)) and not only_maps(module)


def only_looks(module: Module, scope: ast.AST | None) -> bool:
    """Whether a piece of code computes gradients and trains nothing by them."""
    return any(_back_propagating(scope)) and not learns(module, scope)


def trains_anywhere(module: Module) -> bool:
    """Whether the file back-propagates, so that a model's weights may change between calls."""
    calls = (node for node in module.calls if last_name(node.func) in TRAINING_CALLS)
    return any(not explains(module, node) for node in calls) and not only_maps(module)


def explains(module: Module, call: ast.Call) -> bool:
    """Whether `score.backward()` is for a map of what the score came from: it is no loss, and the file changes no weights; or
    for what the images are changed by, as an attack does it: the function around takes the gradient of what it asked it for."""
    if last_name(call.func) != "backward":
        return False
    if not _LOSS.search(ast.unparse(call)) and not _changes_weights(module):
        return True
    function = module.function_of(call)
    return function is not None and (_changes_inputs(function) or _updates_inputs(module, function))


def _changes_inputs(function: ast.AST) -> bool:
    """Whether a function wants the gradient of a tensor that is no weight, reads it, and changes nothing else."""
    wanted = {
        target.value.id
        for node in inside(function, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad" and isinstance(target.value, ast.Name)
        if isinstance(node.value, ast.Constant) and node.value.value is True
    }
    for node in inside(function, ast.Assign):
        if any(map(_asks_for_gradients, inside(node, ast.Call))):
            wanted |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for call in inside(function, ast.Call):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if _asks_for_gradients(call) and isinstance(receiver, ast.Name):
            wanted.add(receiver.id)
    for loop in inside(function, ast.For):
        if "parameters" in ast.unparse(loop.iter):  # weights that are thawed
            wanted -= {name.id for name in inside(loop.target, ast.Name)}
    read = {
        node.value.id for node in inside(function, ast.Attribute) if node.attr == "grad" and isinstance(node.value, ast.Name)
    }
    updated = {
        ast.unparse(node.func).partition(".")[0] for node in inside(function, ast.Call) if last_name(node.func) in _UPDATES
    }
    return bool(wanted & read) and updated <= wanted


def _updates_inputs(module: Module, function: ast.AST) -> bool:
    """Whether the optimizers that a function makes are of tensors of its own, and of no network's weights: `Adam([image])`."""
    made = [call for call in inside(function, ast.Call) if (module.expand(call.func) or "").startswith("torch.optim.")]
    optimizers = [call for call in made if "lr_scheduler" not in ast.unparse(call.func)]
    return bool(optimizers) and all(_is_of_tensors(call) for call in optimizers)


def _is_of_tensors(optimizer: ast.Call) -> bool:
    given = [*optimizer.args, *(item.value for item in optimizer.keywords if item.arg == "params")]
    tensors = given[0].elts if given and isinstance(given[0], ast.List | ast.Tuple) else []
    owners = [
        item.func.value if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) else item for item in tensors
    ]
    return bool(owners) and all(isinstance(item, ast.Name) for item in owners)


def hands_loss_on(module: Module, function: Function | None, call: ast.Call) -> bool:
    """Whether a function that trains, as its name says, computes a loss of what the model gives, for others to back-propagate:
    `def training_step(self, batch)`."""
    if function is None or not _TRAINS.search(function.name) or always_gradless(module, call):
        return False
    return any(_CRITERION.search(last_name(item.func)) for item in inside(function, ast.Call) if item is not call)


def freezes(node: ast.AST) -> bool:
    """Whether gradients are turned off: `model.requires_grad_(False)`, `p.requires_grad = False`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="requires_grad_")):
            return any(isinstance(given, ast.Constant) and given.value is False for given in arguments_of(node))
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=ast.Constant(value=False)):
            return True
    return False


def _asks_for_gradients(call: ast.Call) -> bool:
    if last_name(call.func) == "requires_grad_":
        return not freezes(call)
    return any(
        item.arg == "requires_grad" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in call.keywords
    )


def _back_propagating(scope: ast.AST | None) -> Iterator[ast.Call]:
    for call in inside(scope, ast.Call):
        name = last_name(call.func)
        scaled = re.search(r"scaler$", name, re.I) and any(re.search("loss", ast.unparse(value), re.I) for value in call.args)
        if name in TRAINING_CALLS or scaled:
            yield call


def only_maps(module: Module) -> bool:
    """Whether what the file back-propagates trains nothing: it looks at gradients, and no optimizer takes them."""
    attributes = {node.attr for node in module.of_kind(ast.Attribute)}
    if not attributes & _LOOKS_AT_GRADIENTS or _changes_weights(module):
        return False
    return not any("optim" in word.lower() for word in (*module.words, *module.imports.values(), *attributes))


def _changes_weights(module: Module) -> bool:
    return any(last_name(node.func) in _UPDATES for node in module.calls)


def always_gradless(module: Module, call: ast.AST) -> bool:
    """Whether a call stands under `torch.no_grad()` or the like."""
    for node in module.ancestors(call):
        if isinstance(node, ast.With) and any(_is_no_grad(item.context_expr) for item in node.items):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(_is_no_grad(item) for item in node.decorator_list):
            return True
    return False


def always_differentiated(module: Module, call: ast.Call) -> bool:
    """Whether what a call gives is always differentiated: gradients are asked for around it, its statement takes them, or one
    after it in its block, or in that of the `with` around it, or of the loop that is left after one round."""
    if always_gradless(module, call):
        return False
    around = [item.context_expr for node in module.ancestors(call) if isinstance(node, ast.With) for item in node.items]
    if any(map(_enables_gradients, around)):
        return True
    statement = module.statement_of(call)
    while True:
        block = block_of(module, statement)
        after = block[next(index for index, item in enumerate(block) if item is statement) :]
        simple = (item for item in after if isinstance(item, ast.Expr | ast.Assign))
        if any(_differentiates(module, node) for item in simple for node in inside(item, ast.Call)):
            return True
        above = module.parents[statement]
        if not isinstance(above, ast.With | ast.For | ast.While):
            return False
        if not (isinstance(above, ast.With) or isinstance(above.body[-1], ast.Break)):
            return False
        statement = above


def _enables_gradients(node: ast.expr) -> bool:
    """Whether a `with` begins the taking of gradients: `torch.enable_grad()`, `torch.set_grad_enabled(True)`."""
    if not isinstance(node, ast.Call):
        return False
    on = [item for item in arguments_of(node) if isinstance(item, ast.Constant) and item.value is True]
    return last_name(node.func) == "enable_grad" or (last_name(node.func) == "set_grad_enabled" and bool(on))


def _differentiates(module: Module, call: ast.Call) -> bool:
    return last_name(call.func) == "backward" or module.expand(call.func) == "torch.autograd.grad"


def _is_no_grad(node: ast.AST) -> bool:
    callee = node.func if isinstance(node, ast.Call) else node
    name = last_name(callee)
    if name in _NO_GRAD:
        return True
    if name == "set_grad_enabled" and isinstance(node, ast.Call) and node.args:
        value = node.args[0]
        return isinstance(value, ast.Constant) and not value.value
    return False
