"""Calls that may come to a model's gradients or weights and name neither: `update_bn()` between `backward()` and `step()`."""

import ast
from collections.abc import Collection, Iterator

from ..reading.nodes import inside
from ..reading.scopes import BUILTINS, Function, Module, dotted, last_name, root_of

_OF_GRADIENTS = frozenset(["grad", "zero_grad", "unscale_", "clip_grad_norm_", "clip_grad_value_"])
_TELLS = frozenset(
    "average avg clear cpu detach flush item max mean min numpy refresh start stop sum tic time toc tolist".split()  # noqa: SIM905
)
"""Methods without arguments that only look at what they are of, or take the time."""


def touches_gradients(module: Module, function: Function | None, statement: ast.AST) -> str | None:
    """The first call of a statement whose function in the repository reads, changes or drops gradients, as it is written."""
    return next((ast.unparse(call.func) for call, found in _followed(module, function, statement) if _has(found, ())), None)


def may_reach(
    module: Module, function: Function | None, statement: ast.AST, names: Collection[str], fresh: Collection[str]
) -> str | None:
    """The first call of a statement that may come to gradients or to what has one of the `names`, as it is written.

    Functions of the repository are followed. Of others nothing is known, so a method that is handed nothing, of an object that
    may hold the model (`pruner.mask()`), counts; not one of what is `fresh` in each round, as outputs and losses are.
    """
    for call, found in _followed(module, function, statement):
        if _has(found, names) or (not found and root_of(call.func) not in fresh and _unknown(module, call)):
            return ast.unparse(call.func)
    return None


def _followed(module: Module, function: Function | None, statement: ast.AST) -> Iterator[tuple[ast.Call, list[Function]]]:
    """The calls of a statement, each with the repository's functions that run in it."""
    for call in inside(statement, ast.Call):
        found: list[Function] = []
        waiting = [(module, module.class_of(function) if function is not None else None, call)]
        while waiting:
            inner, owner, part = waiting.pop()
            callee = _callee(inner, owner, part)
            if callee is not None and callee[1] not in found:
                found.append(callee[1])
                waiting += [(callee[0], callee[2], item) for item in inside(callee[1], ast.Call)]
        yield call, found


def _callee(module: Module, owner: ast.ClassDef | None, call: ast.Call) -> tuple[Module, Function, ast.ClassDef | None] | None:
    """A call's function in the repository, with its module and the class whose method it is."""
    text = dotted(call.func) or ""
    if owner is not None and text.startswith("self.") and text.count(".") == 1:
        methods = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == last_name(call.func)]
        return (module, methods[0], owner) if methods else None
    found = module.find_callee(call.func)
    if found is None or isinstance(found[1], ast.ClassDef):
        return None
    return found[0], found[1], None


def _has(functions: Collection[Function], names: Collection[str]) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _OF_GRADIENTS) or dotted(node) in names
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Name | ast.Attribute)
    )


def _unknown(module: Module, call: ast.Call) -> bool:
    root = root_of(call.func)
    if call.args or call.keywords or root is None or root in BUILTINS or module.imported_as(root, call.func) is not None:
        return False
    return last_name(call.func) not in _TELLS and not (isinstance(call.func, ast.Name) and module.find(root) is not None)
