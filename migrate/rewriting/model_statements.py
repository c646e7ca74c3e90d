"""Which statements make a model, make it ready, or change what it consists of."""

import ast
from collections.abc import Collection, Sequence

from ..reading.nodes import inside
from ..reading.scopes import Definition, Function, bound_names, dotted, last_name
from ..slicing.side_effects import MUTATING_CALL

_PREPARING = frozenset(
    "eval to cuda cpu load_state_dict float double train requires_grad_ share_memory load fuse".split()  # noqa: SIM905
)


def binds(statement: ast.stmt, model: str) -> bool:
    if isinstance(statement, Definition):
        return False
    if "." not in model:
        return model in bound_names(statement)
    return any(isinstance(node.ctx, ast.Store) and dotted(node) == model for node in inside(statement, ast.Attribute))


def touches(statement: ast.stmt, model: str) -> bool:
    """Whether a statement binds the model, moves it, fills it, or hands it to something that does."""
    if isinstance(statement, Definition):
        return False
    if binds(statement, model):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_part(node, model):
            return True  # model.fc = nn.Linear(512, 2)
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and dotted(node.func.value) == model and node.func.attr in _PREPARING:
            return True
        if MUTATING_CALL.search(last_name(node.func)) and any(dotted(value) == model for value in node.args):
            return True
    return False


def _is_part(node: ast.expr, model: str) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        if dotted(node) == model:
            return True
    return False


def only_declares(statement: ast.stmt, model: str) -> bool:
    """Whether a statement only declares the model: `self.model = None`."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    return isinstance(statement, ast.AnnAssign | ast.Assign) and (
        (value is None or isinstance(value, ast.Constant)) and binds(statement, model)
    )


def bound_again(scope: Function | ast.Module, anchor: ast.stmt, model: str) -> bool:
    """Whether the model's name is bound again below the statement at which its graph would be made."""
    stack: list[ast.AST] = list(scope.body)
    while stack:
        node = stack.pop()
        if isinstance(node, Definition | ast.Lambda):
            continue
        if isinstance(node, ast.stmt) and node.lineno > (anchor.end_lineno or anchor.lineno):
            inner = [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.stmt)]
            if not inner and binds(node, model):
                return True
        stack.extend(ast.iter_child_nodes(node))
    return False


def may_be_none(body: Sequence[ast.stmt], model: str, optional: Collection[str] = (), *, before: bool = False) -> bool:
    """Whether a model may be None behind some statements, as `build() if wanted else None` is.

    `optional` are names that may be None, as parameters are whose default it is; `before` is whether the model was before.
    """
    state = before
    for item in body:
        if isinstance(item, Definition):
            continue
        if isinstance(item, ast.If):
            without, some = _asks_for_none(item.test, model), _asks_for_some(item.test, model)
            ends = [
                may_be_none(block, model, optional, before=state and not known)
                for block, known in ((item.body, some), (item.orelse, without))
                if not _leaves(block)
            ]
            state = any(ends)
        elif isinstance(item, ast.Try):
            ends = [may_be_none([*item.body, *item.orelse], model, optional, before=state)]
            ends += [may_be_none(one.body, model, optional, before=state) for one in item.handlers if not _leaves(one.body)]
            state = may_be_none(item.finalbody, model, optional, before=any(ends))
        elif isinstance(item, ast.With | ast.AsyncWith | ast.For | ast.AsyncFor | ast.While):
            inner = may_be_none(item.body, model, optional, before=state)
            state = inner if isinstance(item, ast.With | ast.AsyncWith) else inner or state
        elif isinstance(item, ast.Assign | ast.AnnAssign) and binds(item, model):
            state = _is_none(item.value, optional)
        elif any(isinstance(call.func, ast.Attribute) and dotted(call.func.value) == model for call in inside(item, ast.Call)):
            state = False  # `model.eval()` of None is an error
    return state


def is_asked_for(scope: ast.AST, model: str) -> bool:
    """Whether code asks if there is a model: `if model is None`, `if model`."""
    tests = [node.test for node in ast.walk(scope) if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert)]
    return any(_asks_for_none(test, model) or _asks_for_some(test, model) for test in tests)


def _asks_for_none(test: ast.expr, model: str) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return dotted(test.operand) == model
    return _compares_with_none(test, model, ast.Is)


def _asks_for_some(test: ast.expr, model: str) -> bool:
    return dotted(test) == model or _compares_with_none(test, model, ast.IsNot)


def _compares_with_none(test: ast.expr, model: str, how: type[ast.cmpop]) -> bool:
    if not isinstance(test, ast.Compare) or dotted(test.left) != model or not isinstance(test.ops[0], how):
        return False
    return isinstance(other := test.comparators[0], ast.Constant) and other.value is None


def _is_none(value: ast.expr | None, optional: Collection[str]) -> bool:
    """Whether a value may be None, as far as it says so itself."""
    match value:
        case ast.Constant():
            return value.value is None
        case ast.Name():
            return value.id in optional
        case ast.IfExp():
            return _is_none(value.body, optional) or _is_none(value.orelse, optional)
        case ast.BoolOp(op=ast.Or()):
            return _is_none(value.values[-1], optional)
        case _:
            return value is None or isinstance(value, ast.BoolOp)  # `path and load(path)`


def _leaves(block: Sequence[ast.stmt]) -> bool:
    """Whether what follows a block is not come to from it."""
    last = block[-1] if block else None
    ends = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and last_name(last.value.func) in ("exit", "_exit")
    return ends or isinstance(last, ast.Raise | ast.Return | ast.Continue | ast.Break)
