"""Which statements make a model, make it ready, or change what it consists of."""

import ast

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
