"""Checkpoint loading taken out of functions and classes, for where the file of weights is absent.

    def load(path):                                      becomes    def load(path):
        net = Net(len(CLASSES))                                         net = Net(len(CLASSES))
        state = torch.load(path)["state_dict"]                          return net.eval()
        net.load_state_dict(strip(state))
        return net.eval()

What is returned, and what happens to the arguments, still is what the code says; where either needs something out of the
file itself, such as the number of classes, its reading stays.
"""

import ast
from collections.abc import Iterator

from ..reading.nodes import inside
from ..reading.scopes import Definition, Function, Module, NameUse, parameters
from ..reading.statements import with_fields
from .liveness import LiveNames, Options
from .pretrained import SWITCHES
from .side_effects import is_checkpoint_call
from .slicer import Slicer


def without_loading(module: Module, definition: Definition) -> Definition | None:
    """A function, or a class with such methods, without its loading of weights; None when it loads none."""
    if isinstance(definition, ast.ClassDef):
        methods = {item: _function(module, item) for item in definition.body if isinstance(item, ast.FunctionDef)}
        if not any(methods.values()):
            return None
        body = [methods.get(item) or item for item in definition.body]  # type: ignore[call-overload]
        return with_fields(definition, body=body)
    return _function(module, definition)


def reaches_loading(module: Module, definition: Definition) -> bool:
    """Whether calling it loads weights, in itself or in the repository's functions that it calls."""
    return next(loading_modules(module, definition), None) is not None


def loading_modules(module: Module, definition: Definition, _seen: frozenset[Definition] = frozenset()) -> Iterator[Module]:
    """The files whose functions load weights when a function or class is called."""
    if without_loading(module, definition) is not None:
        yield module
    if len(_seen) > 4:
        return
    for node in inside(definition, ast.Call):
        found = module.find_callee(node.func)
        if found is not None and found[1] is not definition and found[1] not in _seen:
            yield from loading_modules(*found, _seen | {definition})


def _function(module: Module, function: Function) -> Function | None:
    if not any(is_checkpoint_call(call) and _loads(module, function, call) for call in inside(function, ast.Call)):
        return None
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in ast.walk(function)):
        return None
    options = Options(checkpoints=False)
    slicer = Slicer(module, function.body, options, top_level=False, returns=True)
    live = LiveNames()
    slicer.mark_live(live, _seen_outside(function))
    kept = slicer.block(function.body, live)
    if not options.dropped:
        return None
    return with_fields(function, body=kept or [ast.Pass()])


def _loads(module: Module, function: Function, call: ast.Call) -> bool:
    """Whether a call fills a model no matter whether pretrained weights are asked for; see `pretrained` for those."""
    for node in module.ancestors(call):
        if isinstance(node, ast.If):
            words = {inner.id for inner in inside(node.test, ast.Name)} | {
                inner.attr for inner in inside(node.test, ast.Attribute)
            }
            if words & set(SWITCHES):
                return False
        if node is function:
            break
    return True


def _seen_outside(function: Function) -> set[NameUse]:
    """What a caller sees besides the result: the objects that it gave, and global names."""
    rebound = {node.id for node in inside(function, ast.Name) if isinstance(node.ctx, ast.Store)}
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    given = {argument.arg for argument in parameters(function)} - rebound
    return {(name, None) for name in given | shared}
