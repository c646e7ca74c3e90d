"""Read a training loop: which statements are its step, and whether one call of a training graph can stand for them."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..reading.nodes import inside
from ..reading.scopes import Function, Module, bound_names, dotted, last_name, local_names
from ..reading.statements import block_of
from ..slicing.early_update import may_update_early
from ..slicing.gradient_calls import moves_with, touches_gradients
from ..survey.call_purposes import part_of_input
from ..survey.loops import CallSite
from .placement import RejectedError
from .training_statements import Backward, backward_passes, in_terms_of, view_of_call, views

_AUTOCAST = frozenset(["autocast", "autocast_mode"])
_OPTIMISER = re.compile(r"optim|(^|[._])opt(_|\d|$)", re.I)
_NO_OPTIMISER = re.compile(r"sched|warm|ema|scaler|meter|profil", re.I)
_CLIPPING = {"clip_grad_norm_": "clip_grad_norm", "clip_grad_norm": "clip_grad_norm", "clip_grad_value_": "clip_grad_value"}
_WRAPPERS = frozenset(["DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"])
_ENDINGS = frozenset(["exit", "_exit", "quit", "abort"])


Scope = ast.For | ast.AsyncFor | ast.While | Function


@dataclass(kw_only=True)
class LoopStep:
    """The step of one loop, or of a function that trains on one batch: the user's own statements, by what they do.

    `after` are those between the call and `backward()`.

    `block` holds the backward pass, `inner` the forward pass: the same, or the body of an autocast block (`cast`) in it.
    """

    site: CallSite
    loop: Scope
    block: list[ast.stmt]
    inner: list[ast.stmt]
    cast: ast.stmt | None
    forward: ast.stmt
    loss: ast.Assign
    division: ast.stmt | None
    """`loss = loss / n`, before the backward pass."""
    divisor: ast.expr | None
    backward: list[Backward]
    branch: ast.If | None
    """`if scaler is not None`, which holds both kinds of backward pass."""
    condition: ast.If | None
    """`if phase == "train"`, which holds the backward pass, where the forward pass serves evaluation too."""
    optimizer: str
    value: ast.expr
    """What the loss is, in terms of the outputs alone where views of them have names."""
    view: ast.expr | None
    """What the forward statement makes of the outputs at once, in terms of the name that this has: `preds.squeeze()`."""
    call_at: ast.stmt
    """The statement that the call replaces: that of the loss, or of the forward pass."""
    after: list[ast.stmt]
    zero_grads: list[ast.stmt] = field(default_factory=list)
    """Every statement of the loop that drops gradients."""

    @property
    def outputs(self) -> str | None:
        return self.site.fact.outputs if self.forward is not self.loss else None

    @property
    def construct_at(self) -> ast.stmt:
        """The statement before which the graph is made: the loop, or in a function of one batch the call itself."""
        return (self.cast or self.call_at) if isinstance(self.loop, Function) else self.loop

    @property
    def computed_at(self) -> ast.stmt | None:
        """Where the loss gets its value, if a round may end between that and the backward pass."""
        return (self.division or self.loss) if any(map(_leaves, self.after)) else None

    @property
    def end(self) -> ast.stmt:
        return self.branch or self.condition or self.backward[0].statement


@dataclass(frozen=True)
class WholeStep:
    """What a step with its update adds: the statements that go, and the options that say what they did."""

    gone: tuple[ast.stmt, ...]
    clipping: tuple[tuple[str, ast.expr], ...]


def read_step(site: CallSite, sites: Sequence[CallSite], *, exchanged: bool = False) -> LoopStep:
    """The step around one training call. Raises RejectedError where the loop is not understood.

    A wrapper that exchanges gradients between processes is such a case, unless the step that is made has them `exchanged`.
    """
    module, loop = site.module, _scope(site)
    if loop is None:
        raise RejectedError("no loop over batches surrounds it")
    _check_bounds(module, site, loop, sites, exchanged=exchanged)
    backward, branch = backward_passes(module, loop)
    forward = module.statement_of(site.call)
    viewed = view_of_call(module, forward, site.call, changing(loop)) if not _binds(forward, backward[0].loss) else None
    view = viewed[1] if viewed is not None else None
    if viewed is not None:
        site = replace(site, fact=replace(site.fact, outputs=viewed[0]))
    condition = _condition(module, backward[0].statement, forward) if branch is None else None
    end = branch or condition or backward[0].statement
    block, inner = block_of(module, end), block_of(module, forward)
    cast = None
    if inner is not block:
        cast = _autocast_around(module, forward, block, enabled=condition is not None)
        if cast is None:
            raise RejectedError("the forward pass and backward() stand in different branches")
    start = _index(block, cast or forward)
    if start >= _index(block, end):
        raise RejectedError("backward() stands before the forward pass")
    last = min(item.statement.lineno for item in backward)
    later = block[start + 1 : _index(block, end)]
    loss, value, division, divisor = _loss(module, loop, site, view, inner, later, backward[0].loss, last)
    optimizer = _optimizer(module, loop)
    call_at = _call_place(inner, forward, loss, value, site)
    moved = [item for item in inner[_index(inner, call_at) + 1 :] if item is not loss] if cast is not None else []
    first = _index(block, cast) if cast is not None else _index(block, call_at)
    moved += [item for item in block[first + 1 : _index(block, end)] if item is not loss]
    inside = [one for item in backward for one in _before(module, item.statement)] if end is not backward[0].statement else []
    if condition is not None and _mentions_bound(condition.test, [*moved, *inside]):
        raise RejectedError("whether the loop back-propagates is decided between the forward pass and backward()")
    if any(_binds(item, name) for item in inside for name in (backward[0].loss, site.fact.outputs or "")):
        raise RejectedError(f"{backward[0].loss} is changed before backward()")
    if branch is not None and any(_is_zero_grad(item) for item in inside):
        raise RejectedError(".zero_grad stands between the loss and backward()")
    moved += inside
    step = LoopStep(
        site=site, loop=loop, block=block, inner=inner, cast=cast, forward=forward, loss=loss, division=division,
        divisor=divisor, backward=backward, branch=branch, condition=condition, optimizer=optimizer,
        value=value, view=view, call_at=call_at, after=[item for item in moved if item is not division],
        zero_grads=[item for item in _statements(loop) if _is_zero_grad(item)],
    )  # fmt: skip
    _check_movable(step)
    return step


def whole_step(step: LoopStep) -> WholeStep | None:
    """The step with its update, where zero_grad, clipping and the optimizer's step stand plainly beside it; else None."""
    if step.end is not step.backward[0].statement or step.cast is not None or step.backward[0].scaler is not None:
        return None
    zero, update = step.zero_grads, _updates(step)
    if len(zero) != 1 or len(update) != 1 or any(_index(step.block, item) < 0 for item in (*zero, *update)):
        return None
    begin, stop = _index(step.block, step.end), _index(step.block, update[0])
    if dotted(_callee(zero[0])) != f"{step.optimizer}.zero_grad" or stop < begin or begin < _index(step.block, zero[0]) < stop:
        return None
    if any(isinstance(node, ast.Constant) and node.value is False for node in ast.walk(zero[0])):
        return None  # gradients of zeros are updates by momentum and weight decay; none are no update
    gone = [step.backward[0].statement, zero[0], update[0]]
    clipping = []
    for item in step.block[begin + 1 : stop]:
        clip = _clip(item, step.site.fact.model)
        if clip is not None:
            clipping.append(clip)
            gone.append(item)
    if len({name for name, _ in clipping}) != len(clipping):
        return None
    stays = [item for item in [*step.after, *step.block[begin + 1 : stop]] if item not in gone]
    module, function, names = step.site.module, step.site.function, (step.site.fact.model, step.optimizer)
    early = [item for item in step.after if item not in gone]
    late = [item for item in stays if item not in early]
    used = [*gone, step.forward, step.loss, *([step.division] if step.division is not None else [])]
    if any(_leaves(item) for item in stays):
        return None
    if not may_update_early(module, function, step.loop, names, changing(step.loop), early, late, used):
        return None
    return WholeStep(tuple(gone), tuple(clipping))


def changing(loop: Scope) -> set[str]:
    """The names, and attributes as written, that each round of a loop, or each call of a function, binds anew."""
    attributes = {
        name for node in inside(loop, ast.Attribute) if isinstance(node.ctx, ast.Store) and (name := dotted(node)) is not None
    }
    return (local_names(loop) if isinstance(loop, Function) else bound_names(loop)) | attributes


def _check_bounds(module: Module, site: CallSite, loop: Scope, sites: Sequence[CallSite], *, exchanged: bool) -> None:
    model = site.fact.model
    if isinstance(loop, ast.AsyncFor | ast.AsyncFunctionDef):
        raise RejectedError("the loop is asynchronous")
    if len(site.call.args) != 1 or site.call.keywords:
        raise RejectedError(f"{model} is called with more than one argument")
    if (part := part_of_input(module, site.function, site.call.args[0])) is not None:
        raise RejectedError(f"what {model} is given is no tensor: {part} is read beside")
    if len([other for other in sites if _scope(other) is loop and other.fact.kind == "train"]) > 1:
        raise RejectedError("the loop has more than one forward pass that trains")
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func).endswith(("forward_hook", "forward_pre_hook", "backward_hook")):
            raise RejectedError("this file registers hooks, which a captured step would not call")
        bound = isinstance(node, ast.Assign) and model in {dotted(target) for target in node.targets}
        if not bound or not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if module.expand(node.value.func) == "torch.compile":
            raise RejectedError(f"{model} is compiled by torch.compile already")
        conditional = isinstance(module.parents.get(node), ast.If)
        if last_name(node.value.func) in _WRAPPERS and not conditional and not exchanged:
            name = last_name(node.value.func)
            raise RejectedError(f"{name} exchanges gradients while they are computed, which a captured step would leave out")
    if any(last_name(call.func) == "no_sync" for call in inside(loop, ast.Call)):
        raise RejectedError("no_sync says when gradients are exchanged, which a captured step would leave out")


def _scope(site: CallSite) -> Scope | None:
    """The loop over batches around a call, else the innermost other one, `while step < steps`, else its function."""
    around = site.module.ancestors(site.call, within=site.function)
    return site.loop or next((item for item in around if isinstance(item, ast.For | ast.While)), None) or site.function


def _condition(module: Module, backward: ast.stmt, forward: ast.stmt) -> ast.If | None:
    """The plain `if` around the backward pass, and not around the forward pass."""
    parent = module.parents[backward]
    if not isinstance(parent, ast.If) or not any(item is backward for item in parent.body):
        return None
    if any(node is forward for node in ast.walk(parent)) or any(inside(parent.test, ast.Call)):
        return None
    return parent


def _before(module: Module, statement: ast.stmt) -> list[ast.stmt]:
    block = block_of(module, statement)
    return block[: _index(block, statement)]


def _mentions_bound(node: ast.AST, statements: Iterable[ast.stmt]) -> bool:
    return any(inner.id in bound_names(item) for item in statements for inner in inside(node, ast.Name))


def _autocast_around(module: Module, forward: ast.stmt, block: list[ast.stmt], *, enabled: bool) -> ast.stmt | None:
    """The statement of `block` that holds the forward pass, if only autocast blocks stand between (or, with `enabled`, one
    that says by `set_grad_enabled` when the forward pass trains)."""
    for current in module.ancestors(forward):
        if not isinstance(current, ast.With):
            return None
        if not all(_is_autocast(item.context_expr) or (enabled and _sets_grad(item.context_expr)) for item in current.items):
            return None
        if any(item is current for item in block):
            return current
    return None


def _sets_grad(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "set_grad_enabled"


def _is_autocast(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _AUTOCAST
    return "autocast" in (dotted(node) or "") or "amp" in (dotted(node) or "")


def _loss(
    module: Module,
    loop: Scope,
    site: CallSite,
    view: ast.expr | None,
    inner: list[ast.stmt],
    later: list[ast.stmt],
    name: str,
    last: int,
) -> tuple[ast.Assign, ast.expr, ast.stmt | None, ast.expr | None]:
    """The statement that computes the loss, of what, and the one that divides it, if any, with its divisor."""
    forward = module.statement_of(site.call)
    here = inner[_index(inner, forward) :]
    own = [item for item in here if _binds(item, name) and item.lineno <= last]
    stores = [node for node in inside(loop, ast.Name) if node.id == name and _is_store(node) and node.lineno <= last]
    candidates = [*own, *(item for item in later if _binds(item, name) and not any(item is one for one in own))]
    if not candidates or not own or candidates[0] is not own[0]:
        raise RejectedError(f"{name} is not computed beside the forward pass")
    loss = own[0]
    if not isinstance(loss, ast.Assign) or len(loss.targets) != 1 or not isinstance(loss.targets[0], ast.Name):
        raise RejectedError(f"{name} is not computed by one plain statement")
    division = candidates[1] if len(candidates) == 2 else None
    divisor = _divisor(division, name) if division is not None else None
    if len(stores) != len(candidates) or len(candidates) > 2 or (division is not None and divisor is None):
        raise RejectedError(f"{name} is changed before backward()")
    outputs, value = site.fact.outputs, loss.value
    if loss is not forward:
        plain = isinstance(forward, ast.Assign) and (forward.value is site.call or view is not None)
        if not plain or outputs is None or "." in outputs:
            raise RejectedError("what the model returns is taken apart, or has no name")
        between = here[1 : _index(here, loss)]
        known = views(module, outputs, view, between, changing(loop))
        if outputs not in known:
            raise RejectedError(f"{outputs} is changed before the loss is computed")
        if not any(_reads(value, item) for item in known):
            raise RejectedError(f"{name} is not computed from {outputs}")
        renamed = [item for item, made in known.items() if not (isinstance(made, ast.Name) and made.id == item)]
        if any(_reads(value, item) for item in renamed):
            value = in_terms_of(value, known)
    if division is not None:
        span = [*here[_index(here, loss) + 1 :], *later]
        span = span[: _index(span, division)]
        if any(_reads(item, name) for item in span):
            raise RejectedError(f"{name} is read both before and after it is divided")
    return loss, value, division, divisor


def _divisor(statement: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Div) and dotted(statement.target) == name:
        return statement.value
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        quotient = statement.value
        if isinstance(quotient.op, ast.Div) and dotted(quotient.left) == name and dotted(statement.targets[0]) == name:
            return quotient.right
    return None


def _optimizer(module: Module, loop: ast.AST) -> str:
    made = {
        dotted(target)
        for node in module.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if (module.expand(node.value.func) or "").startswith("torch.optim.")
        and "lr_scheduler" not in ast.unparse(node.value.func)
        for target in node.targets
    }
    found: set[str] = set()
    for node in inside(loop, ast.Call):
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "step"):
            continue
        receiver = dotted(node.func.value)
        scaled = bool(receiver) and re.search(r"scaler", receiver or "", re.I) and len(node.args) == 1
        name = dotted(node.args[0]) if scaled else receiver
        if name is None or (name not in made and (not _OPTIMISER.search(name) or _NO_OPTIMISER.search(name))):
            continue
        if not scaled and (node.args or node.keywords):
            raise RejectedError(f"{name}.step takes a closure, which computes the loss again")
        found.add(name)
    if len(found) > 1:
        raise RejectedError(f"several optimizers step in the loop: {', '.join(sorted(found))}")
    if not found:
        raise RejectedError("no optimizer steps in the loop")
    return found.pop()


def _call_place(inner: list[ast.stmt], forward: ast.stmt, loss: ast.Assign, value: ast.expr, site: CallSite) -> ast.stmt:
    """The call stands where the loss is computed, or where the outputs are, if they are read in between."""
    outputs = site.fact.outputs
    if loss is forward or outputs is None:
        return loss
    between = inner[_index(inner, forward) + 1 : _index(inner, loss)]
    if any(_leaves(item) for item in between):
        raise RejectedError("the loop may continue, break or return between the forward pass and the loss")
    if not any(_reads(item, outputs) or moves_with(site.module, item, site.fact.model) for item in between):
        return loss
    needed = {node.id for node in inside(value, ast.Name)} - {outputs}
    if any(needed & bound_names(item) for item in between):
        raise RejectedError("what the loss needs is made from the outputs, or of the model or random numbers after its call")
    return forward


def _check_movable(step: LoopStep) -> None:
    """Raise RejectedError where backward() cannot be done before the statements that now stand before it."""
    dropped = [item for item in step.after if _is_zero_grad(item)]
    for item in step.after:
        if item in dropped:
            continue
        for node in ast.walk(item):
            if isinstance(node, ast.Attribute) and node.attr in ("grad", "zero_grad", "step", "requires_grad_"):
                raise RejectedError(f".{node.attr} stands between the loss and backward()")
        if (called := touches_gradients(step.site.module, step.site.function, item)) is not None:
            raise RejectedError(f"{called}() comes to gradients between the loss and backward()")
        fresh = dropped or any(_index(step.block, one) in range(_index(step.block, step.end)) for one in step.zero_grads)
        if _leaves(item) and not fresh and not _ends_program(item):
            raise RejectedError("the loop may continue, break or return between the loss and backward()")


def _updates(step: LoopStep) -> list[ast.stmt]:
    return [item for item in _statements(step.loop) if dotted(_callee(item)) == f"{step.optimizer}.step"]


def _clip(statement: ast.stmt, model: str) -> tuple[str, ast.expr] | None:
    """`clip_grad_norm_(model.parameters(), limit)` as option and limit."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return None
    call = statement.value
    option = _CLIPPING.get(last_name(call.func))
    given = [*call.args, *(item.value for item in call.keywords if item.arg in ("max_norm", "clip_value"))]
    if option is None or len(given) != 2 or len(call.args) + len(call.keywords) != 2:
        return None
    parameters = given[0]
    if not (isinstance(parameters, ast.Call) and not parameters.args and dotted(parameters.func) == f"{model}.parameters"):
        return None
    return option, given[1]


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    return (item for item in ast.walk(node) if isinstance(item, ast.stmt) and item is not node)


def _index(block: Sequence[ast.stmt], statement: ast.stmt | None) -> int:
    """Where a statement stands in a block; -1 where it does not."""
    return next((index for index, item in enumerate(block) if item is statement), -1)


def _callee(statement: ast.stmt) -> ast.expr | None:
    """What a statement calls that is nothing but a call."""
    return statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _is_zero_grad(statement: ast.stmt) -> bool:
    callee = _callee(statement)
    return callee is not None and last_name(callee) == "zero_grad"


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _binds(statement: ast.stmt, name: str) -> bool:
    return name in bound_names(statement)


def _reads(node: ast.AST, name: str) -> bool:
    return any(inner.id == name and isinstance(inner.ctx, ast.Load) for inner in inside(node, ast.Name))


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement may go elsewhere than to the next one."""
    return any(
        isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Raise | ast.Yield | ast.YieldFrom)
        or (isinstance(node, ast.Call) and last_name(node.func) in _ENDINGS)
        for node in ast.walk(statement)
    )


def _ends_program(statement: ast.stmt) -> bool:
    return not any(
        isinstance(node, ast.Break | ast.Continue | ast.Return | ast.Yield | ast.YieldFrom) for node in ast.walk(statement)
    )
