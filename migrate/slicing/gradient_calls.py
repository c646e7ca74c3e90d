"""Calls that may come to a model's gradients or weights and name neither: `update_bn()` between `backward()` and `step()`."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from ..reading.nodes import arguments_of, inside
from ..reading.scopes import BUILTINS, Definition, Function, Module, dotted, last_name, local_names, parameters, root_of

_OF_GRADIENTS = frozenset(["backward", "grad", "zero_grad", "unscale_", "clip_grad_norm_", "clip_grad_value_"])
_OF_WEIGHTS = frozenset(
    "buffers children modules named_buffers named_modules named_parameters param_groups parameters state_dict weight".split()  # noqa: SIM905
)
_TELLS = frozenset(
    "average avg clear cpu detach flush item max mean min numpy refresh start stop sum tic time toc tolist".split()  # noqa: SIM905
)
"""Methods without arguments that only look at what they are of, or take the time."""
_NOTES = frozenset(
    "add_scalar append debug extend info log print set_description set_postfix warning write".split()  # noqa: SIM905
)
_DRAWS = re.compile(r"rand|shuffle|sample|beta$|choice|normal_?$|uniform|bernoulli|multinomial|dropout|mix_?up|cut_?mix", re.I)
_HARMLESS = frozenset(
    "cpu cuda eval half float modules named_modules named_parameters parameters requires_grad_ state_dict to train".split()  # noqa: SIM905
)
"""Methods of a module that compute no gradients."""
_SCHEDULES = re.compile(r"sched|warm_?up", re.I)
"""What an object is called that sets learning rates."""
_COUNTS = frozenset(["add", "record", "update"])
"""Methods that note a number: of a loss, or of outputs; what is handed something else may well change weights (an average)."""


def touches_gradients(module: Module, function: Function | None, statement: ast.AST) -> str | None:
    """The first call of a statement whose function in the repository reads, changes or drops gradients, as it is written."""
    return next((_text(call) for call, found in _followed(module, function, statement) if _has(found, (), _OF_GRADIENTS)), None)


def may_reach(
    module: Module,
    function: Function | None,
    statement: ast.AST,
    names: Collection[str],
    fresh: Collection[str],
    *,
    strict: bool = False,
) -> str | None:
    """The first call of a statement that may come to gradients or weights, or to what has one of the `names`, as it is written.

    Functions of the repository are followed. Of others nothing is known, so a call counts unless something is handed to it
    that is `fresh` in each round, as outputs and losses are, or it is a method of such, or one that only tells. With `strict`,
    for where gradients stand, something fresh is enough only for what notes numbers.
    """
    own = set(fresh) - _borrowed(statement, fresh)
    for call, found in _followed(module, function, statement):
        if _has(found, names, _OF_GRADIENTS | _OF_WEIGHTS):
            return _text(call)
        if isinstance(call, ast.Call) and not found and _is_unknown(module, call, own, strict=strict):
            return _text(call)
    return None


def hands_over(module: Module, function: Function | None, statement: ast.AST, names: Collection[str]) -> str | None:
    """The first call of a statement that a library may use to compute gradients: it has, or is given, one of the `names`."""
    for call, found in _followed(module, function, statement):
        if found or not isinstance(call, ast.Call) or root_of(call.func) in BUILTINS:
            continue
        scheduled = isinstance(call.func, ast.Attribute) and _SCHEDULES.search(dotted(call.func.value) or "")
        if last_name(call.func) in _HARMLESS or scheduled or (module.expand(call.func) or "").startswith("torch."):
            continue
        if any(dotted(node) in names for part in (call.func, *arguments_of(call)) for node in ast.walk(part)):
            return _text(call)
    return None


def moves_with(module: Module, statement: ast.AST, model: str) -> bool:
    """Whether a statement does something else after a call of the model than before it: with the model, or a random number."""
    followed = [part for _, found in _followed(module, None, statement) for part in found]
    calls = [call for part in (statement, *followed) for call in inside(part, ast.Call)]
    drawn = (_DRAWS.search(last_name(call.func)) or ".random" in (module.expand(call.func) or "") for call in calls)
    named = (dotted(node) == model for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute))
    return any(named) or any(drawn)


def binds_anew(module: Module, function: Function | None, scope: ast.AST, names: Collection[str]) -> str | None:
    """The first of the names, `self.model` or a global, that a function which is called in a piece of code binds."""
    for found in {item: None for _, functions in _followed(module, function, scope) for item in functions}:
        shared = {name for node in inside(found, ast.Global) for name in node.names}
        stored = {dotted(node) or "" for node in inside(found, ast.Attribute) if isinstance(node.ctx, ast.Store)}
        stored |= {node.id for node in inside(found, ast.Name) if isinstance(node.ctx, ast.Store) and node.id in shared}
        if again := sorted(stored & set(names)):
            return again[0]
    return None


def reads_gradients(module: Module, scopes: Iterable[ast.AST]) -> bool:
    """Whether some pieces of code read a tensor's gradient, or what they call in the repository does."""
    for scope in scopes:
        own = module.class_of(scope) if isinstance(scope, Function) else None
        code = [scope, *_reached(module, own, scope)]
        if any(node.attr == "grad" and dotted(node.value) not in ("torch.autograd", "autograd")
               for part in code for node in inside(part, ast.Attribute)):  # fmt: skip
            return True
    return False


def made_of(module: Module, names: Collection[str], fresh: Collection[str]) -> set[str]:
    """The names, and those that the file binds to what is made of them: `params = list(model.parameters())`, `net = model`."""
    known = set(names)
    pairs = [pair for node in module.of_kind(ast.Assign) for target in node.targets for pair in _pairs(target, node.value)]
    before = -1
    while before != len(known):
        before = len(known)
        for target, value in pairs:
            called = isinstance(value, ast.Call) and dotted(value.func) in names
            if target in known and isinstance(value, ast.Name | ast.Attribute) and (same := dotted(value)) is not None:
                known.add(same)
            elif (
                target != "_" and target not in fresh and not called and any(dotted(node) in known for node in ast.walk(value))
            ):
                known.add(target)
    return known


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, other)
    elif (name := dotted(target)) is not None:
        yield name, value
    elif isinstance(target, ast.Tuple | ast.List):
        yield from ((name, value) for item in target.elts if (name := dotted(item)) is not None)


def _borrowed(statement: ast.AST, fresh: Collection[str]) -> set[str]:
    """Names that a statement's own loops bind to parts of what is not fresh: `for callback in callbacks`."""
    pairs = [(loop.iter, loop.target) for loop in inside(statement, ast.For)]
    pairs += [(loop.iter, loop.target) for loop in inside(statement, ast.comprehension)]
    of_others = [target for of, target in pairs if not any(name.id in fresh for name in inside(of, ast.Name))]
    return {name.id for target in of_others for name in inside(target, ast.Name)}


def _text(call: ast.Call | ast.Attribute) -> str:
    return ast.unparse(call.func if isinstance(call, ast.Call) else call)


def _followed(
    module: Module, function: Function | None, statement: ast.AST
) -> Iterator[tuple[ast.Call | ast.Attribute, list[Function]]]:
    """The calls and properties of a statement, each with the repository's functions that run in it."""
    owner = module.class_of(function) if function is not None else None
    for part in _parts(statement):
        first = _callees(module, owner, part)
        if first or isinstance(part, ast.Call):
            found = [item[1] for item in first]
            for where, called, kind in first:
                found += (item for item in _reached(where, kind, called) if item not in found)
            yield part, found


def _parts(node: ast.AST) -> Iterator[ast.Call | ast.Attribute]:
    yield from inside(node, ast.Call)
    yield from (part for part in inside(node, ast.Attribute) if isinstance(part.ctx, ast.Load))


def _reached(module: Module, owner: ast.ClassDef | None, scope: ast.AST) -> list[Function]:
    found: list[Function] = []
    waiting = [(module, owner, part) for part in _parts(scope)]
    while waiting:
        for where, called, kind in _callees(*waiting.pop()):
            if called not in found:
                found.append(called)
                waiting += [(where, kind, part) for part in _parts(called)]
    return found


def _callees(
    module: Module, owner: ast.ClassDef | None, part: ast.Call | ast.Attribute
) -> list[tuple[Module, Function, ast.ClassDef | None]]:
    """A call's functions in the repository, each with its module and the class whose method it is: of a method, all that may
    be meant by `self.` in some class, since another one may have its own."""
    if isinstance(part, ast.Attribute):
        methods = _methods(module, part.attr) if part.attr in module.repository.held else []
        return [item for item in methods if any(last_name(mark).endswith("property") for mark in item[1].decorator_list)]
    text = dotted(part.func) or ""
    if owner is not None and text.startswith("self.") and text.count(".") == 1:
        return _methods(module, last_name(part.func))
    found = module.find_callee(part.func)
    if found is None or isinstance(found[1], ast.ClassDef):
        return []
    return [(found[0], found[1], None)]


def _methods(module: Module, name: str) -> list[tuple[Module, Function, ast.ClassDef | None]]:
    if name not in module.repository.function_names:
        return []
    return [
        (where, item, kind)
        for where in module.repository.modules.values()
        for kind in where.of_kind(ast.ClassDef)
        for item in kind.body
        if isinstance(item, ast.FunctionDef) and item.name == name
    ]


def _has(functions: Collection[Function], names: Collection[str], attributes: Collection[str]) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in attributes) or dotted(node) in of_others
        for function in functions
        for of_others in [set(names) - (local_names(function) | {argument.arg for argument in parameters(function)})]
        for node in ast.walk(function)
        if isinstance(node, ast.Name | ast.Attribute)
    )


def _is_unknown(module: Module, call: ast.Call, fresh: Collection[str], *, strict: bool) -> bool:
    """Whether nothing says of a call that it leaves gradients and weights alone."""
    root, name = root_of(call.func), last_name(call.func)
    if root in fresh:
        return False
    if strict and _OF_GRADIENTS & {name, (module.expand(call.func) or "").rpartition(".")[2]}:
        return True
    if root is None or root in BUILTINS or module.imported_as(root, call.func) is not None or name in _NOTES:
        return False
    given = arguments_of(call)
    if any(node.id in fresh for value in given for node in inside(value, ast.Name)):
        return strict and name not in _COUNTS
    if not given and name in _TELLS:
        return False
    known = module.find(root) if isinstance(call.func, ast.Name) else None
    return known is None or not isinstance(known[1], Definition)
