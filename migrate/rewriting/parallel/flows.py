"""Which names of a file stand for one object: assignments from name to name, and arguments of the file's own functions."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...reading.calls import bind
from ...reading.nodes import keyword_of
from ...reading.scopes import Definition, Function, Module, parameters

_SAME = frozenset(["to", "cuda", "cpu", "float", "double", "train", "eval"])
"""Methods that give their module back."""
_CONVERTS = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"
_SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn")


@dataclass(frozen=True)
class Place:
    """A name in the function, the file or, with "self.", the class to which it belongs."""

    scope: ast.AST
    name: str


@dataclass(frozen=True)
class Flow:
    """What stands in one place comes to stand in another, by this expression."""

    source: Place
    target: Place
    by: ast.expr
    unwraps: bool = False
    """Whether it is the `.module` of what stands in the source."""


def itself(module: Module, value: ast.expr) -> ast.expr:
    """What an expression gives that only moves a module: `model` of `model.to(device)`."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
            value = value.func.value
        elif module.expand(value.func) == _CONVERTS and value.args:
            value = value.args[0]
        else:
            break
    return value


def is_spawn(module: Module, call: ast.Call) -> bool:
    """Whether a call starts processes by `torch.multiprocessing.spawn`."""
    return module.expand(call.func) in _SPAWN


def place_of(module: Module, node: ast.AST) -> Place | None:
    """What a name, or an attribute of `self`, belongs to; None for every other expression."""
    if isinstance(node, ast.Name):
        for scope in module.ancestors(node):
            if isinstance(scope, Function) and node.id in module.names_of(scope):
                return Place(scope, node.id)
        return Place(module.tree, node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = _owner(module, node.value)
        return Place(owner, f"self.{node.attr}") if owner is not None else None
    return None


def _owner(module: Module, name: ast.Name) -> ast.ClassDef | None:
    """The class whose method has this name first among its parameters."""
    function = module.function_of(name)
    given = parameters(function) if function is not None else []
    plain = function is not None and not any(True for _ in function.decorator_list)
    return module.class_of(function) if function is not None and plain and given and given[0].arg == name.id else None


def flows(module: Module) -> list[Flow]:
    """All of a file."""
    found: list[Flow] = []
    for node in module.of_kind(ast.Assign):
        for target in node.targets:
            if (place := place_of(module, target)) is not None:
                found += _flow(module, node.value, place)
    for call in module.calls:
        for function, given in _bound(module, call):
            names = {item.arg for item in parameters(function)}
            found += [
                flow for name, value in given.items() if name in names for flow in _flow(module, value, Place(function, name))
            ]
    return found


def _flow(module: Module, value: ast.expr, target: Place) -> Iterator[Flow]:
    given = itself(module, value)
    unwraps = isinstance(given, ast.Attribute) and given.attr == "module"
    source = place_of(module, given)
    if source is not None and not unwraps:
        yield Flow(source, target, given)
    elif isinstance(given, ast.Attribute) and unwraps and (source := place_of(module, given.value)) is not None:
        yield Flow(source, target, given, unwraps=True)


def _bound(module: Module, call: ast.Call) -> Iterator[tuple[Function, dict[str, ast.expr]]]:
    """The function of this file that a call reaches, with its arguments by the names of the parameters."""
    if is_spawn(module, call):
        started = module.find_callee(call.args[0]) if call.args else None
        given = keyword_of(call, "args")
        values = given.value if given is not None else call.args[1] if len(call.args) > 1 else None
        if started is not None and isinstance(started[1], Function) and isinstance(values, ast.Tuple):
            yield started[1], bind(started[1], ast.Call(started[1], values.elts, []), skip=1)  # type: ignore[arg-type]
        return
    reached = callee(module, call)
    if reached is not None:
        yield reached[0], bind(reached[0], call, skip=reached[1])


def callee(module: Module, call: ast.Call) -> tuple[Function, int] | None:
    """The function of this file that a call reaches, a class's constructor too, and how many of its parameters are bound
    otherwise."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        owner = _owner(module, call.func.value)
        if owner is not None:
            method = _method(owner, call.func.attr)
            return (method, 1) if method is not None else None
    found = module.find_callee(call.func)
    if found is None or found[0] is not module:
        return None
    definition: Definition = found[1]
    if isinstance(definition, ast.ClassDef):
        method = _method(definition, "__init__")
        return (method, 1) if method is not None else None
    return definition, 0


def _method(owner: ast.ClassDef, name: str) -> Function | None:
    return next((item for item in owner.body if isinstance(item, Function) and item.name == name), None)


def forward(start: Place, known: Sequence[Flow]) -> set[Place]:
    """The place and all to which what stands there comes."""
    found, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        for flow in known:
            if flow.source == at and flow.target not in found and not flow.unwraps:
                found.add(flow.target)
                waiting.append(flow.target)
    return found


def together(start: Place, known: Sequence[Flow]) -> set[Place]:
    """The place and all that are tied to it in either direction."""
    both = [*known, *(Flow(flow.target, flow.source, flow.by, flow.unwraps) for flow in known)]
    return forward(start, both)


def bindings(module: Module, place: Place) -> list[ast.AST]:
    """Where a file stores something in a place."""
    names = [node for node in module.of_kind(ast.Name) if isinstance(node.ctx, ast.Store | ast.Del)]
    attributes = [node for node in module.of_kind(ast.Attribute) if isinstance(node.ctx, ast.Store | ast.Del)]
    return [node for node in (*names, *attributes) if place_of(module, node) == place]
