"""Whether the update of weights may be done where a training loop computes its loss, and gradients be gone after it."""

import ast
from collections.abc import Collection, Iterator, Sequence

from ..reading.nodes import inside
from ..reading.scopes import Definition, Function, Module, bound_names, dotted, last_name
from .gradient_calls import hands_over, made_of, may_reach, reads_gradients, touches_gradients


def may_update_early(
    module: Module,
    function: Function | None,
    loop: ast.AST,
    names: Collection[str],
    fresh: Collection[str],
    early: Sequence[ast.stmt],
    late: Sequence[ast.stmt],
    used: Sequence[ast.stmt],
) -> bool:
    """Whether nothing around a step notices: what stays between the loss and the update comes neither to gradients nor to
    weights or learning rates, and nothing else computes or reads gradients.

    `names` are the model's and the optimizer's, `fresh` those that each round binds anew, `early` what stands between the loss
    and `backward()`, `late` what stands between that and the update, `used` the statements of the step itself.
    """
    known = made_of(module, names, fresh)
    tensors = set(fresh) - _counters(loop)
    for items, strict in ((early, False), (late, True)):
        for item in items:
            if any(dotted(node) in known for node in ast.walk(item) if isinstance(node, ast.Name | ast.Attribute)):
                return False
            if may_reach(module, function, item, known, tensors, strict=strict):
                return False
    others = [(at, item) for at, item in _simple(loop) if not any(at is one for one in used)]
    update = max(item.lineno for item in used)
    if any(touches_gradients(module, function, item) for _, item in others):
        return False
    if any(at.lineno < update and hands_over(module, function, item, known) for at, item in others):
        return False
    return not reads_gradients(module, [loop, *_around(module, function)])


def _around(module: Module, function: Function | None) -> Iterator[ast.AST]:
    """What may run once a loop has ended: the file's own statements, its function, what decorates that, and the methods beside
    it."""
    yield from (item for item in module.tree.body if not isinstance(item, Definition))
    if function is not None:
        yield function
        marks = (module.find_callee(mark.func if isinstance(mark, ast.Call) else mark) for mark in function.decorator_list)
        yield from (found[1] for found in marks if found is not None)
        if (owner := module.class_of(function)) is not None:
            yield from (item for item in owner.body if isinstance(item, Function))


def _counters(loop: ast.AST) -> set[str]:
    """The names by which a loop counts its rounds: `i` of `enumerate(loader)`."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return set()
    target: ast.expr | None = loop.target if last_name(loop.iter.func) in ("range", "trange") else None
    if last_name(loop.iter.func) == "enumerate" and isinstance(loop.target, ast.Tuple):
        target = loop.target.elts[0]
    return bound_names(target) if target is not None else set()


def _simple(loop: ast.AST) -> Iterator[tuple[ast.stmt, ast.AST]]:
    """The simple statements of a loop, and what the others begin with: `with apply(model):`; each with the statement."""
    for item in inside(loop, ast.stmt):
        parts = list(ast.iter_child_nodes(item))
        inner = [part for part in parts if not isinstance(part, ast.stmt)]
        if item is not loop:
            yield from [(item, item)] if len(inner) == len(parts) else ((item, part) for part in inner)
