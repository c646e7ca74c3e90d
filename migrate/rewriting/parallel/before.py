"""What a script does with a model before it wraps it. It becomes global in place, so nothing may keep it or its parameters."""

import ast

from ...reading.names import meaning
from ...reading.scopes import Module, last_name
from ..placement import RejectedError
from ..rule import Context
from .flows import Flow, Place, callee, is_spawn, place_of
from .uses import Uses

_ITERATES = frozenset(
    ["parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers", "named_buffers"]
)
_COUNTS = frozenset(["sum", "len", "print", "max", "min", "any", "all"])
_LOOKS = frozenset(["print", "len", "isinstance", "type", "id", "str", "repr", "hasattr", "getattr", "next"])
_COPIES = frozenset(["copy.deepcopy", "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "torch.save"])


def check_before(context: Context, uses: Uses, optimizers: set[Place], known: list[Flow]) -> None:
    """Raises RejectedError, with the line, where something may keep the model or its parameters."""
    module = context.module
    for node, _ in uses.before:
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute):
            _check_attribute(module, parent, optimizers)
        elif isinstance(parent, ast.Call) and parent.func is node:
            continue
        elif not _is_known(module, node, parent, uses, known):
            raise RejectedError(f"line {node.lineno} hands the model to something that may keep it, before it becomes global")


def _check_attribute(module: Module, attribute: ast.Attribute, optimizers: set[Place]) -> None:
    call = module.parents[attribute]
    if attribute.attr not in _ITERATES or not isinstance(call, ast.Call) or call.func is not attribute:
        return
    statement = module.statement_of(call)
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if targets and all(place_of(module, target) in optimizers for target in targets):
        return
    around = [item for item in module.ancestors(call) if isinstance(item, ast.Call)]
    if not any(isinstance(item.func, ast.Name) and item.func.id in _COUNTS for item in around):
        raise RejectedError(f"line {call.lineno} keeps parameters of the model, from before it becomes global")


def _is_known(module: Module, node: ast.expr, parent: ast.AST, uses: Uses, known: list[Flow]) -> bool:
    if isinstance(parent, ast.Assign):
        targets = [place_of(module, target) for target in parent.targets]
        return parent.value is node and all(target in uses.names | uses.plain for target in targets)
    call = parent if isinstance(parent, ast.Call) else module.parents.get(parent)
    if isinstance(parent, ast.Tuple | ast.List) and isinstance(call, ast.keyword):
        call = module.parents.get(call)
    if isinstance(parent, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.FormattedValue | ast.If):
        return True
    if not isinstance(call, ast.Call):
        return False
    if meaning(module, call.func) in _COPIES or (isinstance(call.func, ast.Name) and last_name(call.func) in _LOOKS):
        return True
    if callee(module, call) is None and not is_spawn(module, call):
        return False
    reached = [flow.target for flow in known if flow.by is node]
    return bool(reached) and all(place in uses.names | uses.plain or _keeps_not(place, known) for place in reached)


def _keeps_not(place: Place, known: list[Flow]) -> bool:
    """Whether a parameter stays in its function."""
    return not any(flow.source == place for flow in known)
