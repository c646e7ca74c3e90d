"""Whether what a `torch.load` reads becomes a model's weights (or is the model), or is data: batches, labels, features."""

import ast
from collections.abc import Iterator
from itertools import takewhile

from ..reading.calls import Calls
from ..reading.scopes import Function, Module, dotted, last_name, root_of
from ..slicing.side_effects import is_checkpoint_call

_MODEL_METHODS = frozenset(["eval", "parameters", "named_parameters", "state_dict", "modules", "named_modules", "children"])
_SAME = frozenset(["to", "cuda", "cpu", "float", "half", "module"])
_DEPTH = 3
"""Through so many returning functions what was read is followed."""


def feeds_model(
    module: Module, read: ast.expr, calls: Calls, depth: int = 0, followed: dict[ast.expr, int] | None = None
) -> bool:
    """Whether the value of an expression reaches a call that fills a model, or is used as a model itself.

    Follows names and attributes inside the function, the class (`self.state`) or the module, and results into the callers.
    `followed` holds, for one question, the expressions from which the way was gone already, and from what depth.
    """
    followed = {} if followed is None else followed
    followed[read] = depth
    scope: ast.AST = module.function_of(read) or module.tree
    carried: set[str] = set()
    """Names that hold the value or something made of it."""
    itself: set[str] = set()
    """Names that hold the value as it is."""
    work = [read]
    seen: set[ast.AST] = set()
    while work:
        node = work.pop()
        if node in seen:
            continue
        seen.add(node)
        if _fills(module, node) or _is_used_as_model(module, node, plain=node is read or dotted(node) in itself):
            return True
        for name, same in _handed_on(module, node):
            if name in carried and (not same or name in itself):
                continue
            carried.add(name)
            if same and (node is read or dotted(node) in itself):
                itself.add(name)
            inside = scope if isinstance(scope, Function) and "." not in name else None
            work += _loads_of(module, inside, name)
        if isinstance(module.statement_of(node), ast.Return) and depth < _DEPTH:
            for where, site in _callers(module, node, calls):
                if followed.get(site, _DEPTH + 1) > depth + 1 and feeds_model(where, site, calls, depth + 1, followed):
                    return True
    return False


def _callers(module: Module, returned: ast.expr, calls: Calls) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that may get what a function returns: scripts may each have a function of the same name."""
    function = module.function_of(returned)
    for where, site in calls.by_name.get(function.name, []) if function is not None else []:
        found = where.find_callee(site.func)
        if found is None or found[1] is function:
            yield where, site


def _loads_of(module: Module, function: Function | None, name: str) -> Iterator[ast.expr]:
    """The places inside a function, or anywhere in the file, where a name is read."""
    for node in module.loads.get(name, []):
        if function is None or function.lineno <= node.lineno <= (function.end_lineno or 0):
            yield node


def _above(module: Module, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The expressions around a node, innermost first, each with its part that holds the node."""
    inner = node
    for outer in takewhile(lambda item: not isinstance(item, ast.stmt), module.ancestors(node)):
        yield outer, inner
        inner = outer


def _fills(module: Module, node: ast.expr) -> bool:
    """Whether the node stands in an argument of `load_state_dict` or another call that loads weights."""
    for outer, inner in _above(module, node):
        if not (isinstance(outer, ast.Call) and inner is not outer.func and is_checkpoint_call(outer)):
            continue
        of_object = isinstance(outer.func, ast.Attribute) and root_of(outer.func) not in module.imports
        if last_name(outer.func) != "load" or of_object:
            return True
    return False


def _is_used_as_model(module: Module, node: ast.expr, *, plain: bool) -> bool:
    """`torch.load(path).eval()`, `model = torch.load(path)` ... `model(images)`."""
    if not plain:
        return False
    for outer, inner in _above(module, node):
        if isinstance(outer, ast.Call) and outer.func is inner:
            if inner is node and dotted(node) is not None:
                return True
            if isinstance(inner, ast.Attribute):
                if inner.attr in _MODEL_METHODS:
                    return True
                if inner.attr not in _SAME:
                    return False
        elif not (isinstance(outer, ast.Attribute) and (outer.attr in _SAME or outer.attr in _MODEL_METHODS)):
            return False
    return False


def _handed_on(module: Module, node: ast.expr) -> Iterator[tuple[str, bool]]:
    """The names that a statement fills from a node it holds, and whether with the very value."""
    statement = module.statement_of(node)
    match statement:
        case ast.Assign():
            same = all(_keeps(outer) for outer, _ in _above(module, node))
            for target in statement.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name | ast.Attribute) and (name := dotted(part)) is not None and name != "self":
                        yield name, same and part is target
        case ast.AnnAssign() if statement.value is not None and (name := dotted(statement.target)) is not None:
            yield name, all(_keeps(outer) for outer, _ in _above(module, node))
        case ast.AugAssign() if (name := dotted(statement.target)) is not None:
            yield name, False
        case ast.For():
            if any(outer is statement.iter for outer in (node, *(item for item, _ in _above(module, node)))):
                for part in ast.walk(statement.target):
                    if isinstance(part, ast.Name):
                        yield part.id, False
        case ast.Expr() if isinstance(statement.value, ast.Call):
            receiver = dotted(statement.value.func.value) if isinstance(statement.value.func, ast.Attribute) else None
            if receiver is not None and last_name(statement.value.func) in ("update", "append", "extend", "setdefault"):
                yield receiver, False


def _keeps(outer: ast.AST) -> bool:
    """Whether an expression gives on the value inside it: `.to(device)`, but no subscript and no other call."""
    if isinstance(outer, ast.Call):
        return isinstance(outer.func, ast.Attribute) and outer.func.attr in (*_SAME, "eval")
    return isinstance(outer, ast.Attribute) and outer.attr in (*_SAME, "eval")
