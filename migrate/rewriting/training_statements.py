"""Read single statements of a training loop: its backward passes, and what it makes of the model's outputs before the loss,
such as another shape, a part of them, or their probabilities."""

import ast
import copy
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from ..reading.bindings import root_of
from ..reading.nodes import inside
from ..reading.scopes import Module, bound_names, dotted, last_name
from ..reading.statements import block_of
from .placement import RejectedError

# Methods of a tensor, and functions of torch that take it first, which change nothing else than what they return.
_METHODS = frozenset(
    [
        "squeeze",
        "unsqueeze",
        "view",
        "reshape",
        "flatten",
        "contiguous",
        "permute",
        "transpose",
        "t",
        "swapaxes",
        "sigmoid",
        "softmax",
        "log_softmax",
        "logsigmoid",
        "tanh",
        "relu",
        "clamp",
        "clip",
        "exp",
        "log",
        "log1p",
        "sqrt",
        "abs",
        "float",
        "double",
        "mean",
        "sum",
    ]
)
_SIZES = frozenset(["size", "len", "dim"])
_PARTS = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.List, ast.Subscript, ast.Slice)


@dataclass(frozen=True)
class Backward:
    """`loss.backward()`, `(loss / divide).backward()` or `scaler.scale(loss).backward()`."""

    statement: ast.stmt
    loss: str
    divide: ast.expr | None
    scaler: str | None


def backward_passes(module: Module, loop: ast.AST) -> tuple[list[Backward], ast.If | None]:
    """Every backward pass of a loop, and the `if` that holds both kinds. Raises RejectedError where they are not understood."""
    calls = [call for call in inside(loop, ast.Call) if last_name(call.func) == "backward"]
    if not calls:
        raise RejectedError("backward() is called in a function of its own, which the step's statements cannot be told from")
    if len(calls) > 2:
        raise RejectedError("the loop has more than one backward()")
    known = [_read_backward(module, call) for call in calls]
    if len(known) == 1:
        return known, None
    branch = module.parents[known[0].statement]
    scaled = [item for item in known if item.scaler is not None]
    texts = {(item.loss, ast.unparse(item.divide) if item.divide is not None else "") for item in known}
    if (
        not isinstance(branch, ast.If)
        or module.parents[known[1].statement] is not branch
        or block_of(module, known[0].statement) is block_of(module, known[1].statement)
        or len(scaled) != 1
        or len(texts) != 1
    ):
        raise RejectedError("the loop has more than one backward()")
    if 1 in (len(branch.body), len(branch.orelse)) and (len(branch.body), len(branch.orelse)) != (1, 1):
        raise RejectedError("backward() is all that one branch does")
    return known, branch


def _read_backward(module: Module, call: ast.Call) -> Backward:
    statement = module.statement_of(call)
    assert isinstance(call.func, ast.Attribute | ast.Name)
    if not isinstance(call.func, ast.Attribute) or not isinstance(statement, ast.Expr) or statement.value is not call:
        raise RejectedError("backward() is not a statement of its own")
    if call.args or call.keywords:
        receiver = dotted(call.func.value) or "its caller"
        raise RejectedError(f"backward() of {receiver} takes arguments, so more happens than backpropagation from the loss")
    started: ast.expr = call.func.value
    scaler = None
    if isinstance(started, ast.Call) and isinstance(started.func, ast.Attribute) and started.func.attr == "scale":
        scaler = dotted(started.func.value)
        if scaler is None or len(started.args) != 1:
            raise RejectedError("it is not clear what scales the loss")
        started = started.args[0]
    divide = None
    if isinstance(started, ast.BinOp) and isinstance(started.op, ast.Div):
        divide = started.right
        started = started.left
    if not isinstance(started, ast.Name):
        raise RejectedError("what back-propagates has no name of its own")
    return Backward(statement, started.id, divide, scaler)


def view_of_call(module: Module, statement: ast.stmt, call: ast.Call, changing: Set[str]) -> tuple[str, ast.expr] | None:
    """The name that is bound, and what it is in terms of that name for the outputs, in `preds = model(x).squeeze()`.

    `changing` are the names that each round of the loop binds anew.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or statement.value is call:
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or any(node.id == target.id for node in inside(call, ast.Name)):
        return None
    made = _without(statement.value, call, target.id)
    return (target.id, made) if is_view(module, made, {target.id}, changing) else None


def views(
    module: Module, outputs: str, first: ast.expr | None, between: Iterable[ast.stmt], changing: Set[str]
) -> dict[str, ast.expr]:
    """Names that hold a view of the outputs after these statements, each in terms of the name for the outputs themselves."""
    known = {outputs: first if first is not None else ast.Name(outputs, ast.Load())}
    for item in between:
        target = item.targets[0] if isinstance(item, ast.Assign) and len(item.targets) == 1 else None
        if (
            isinstance(item, ast.Assign)
            and isinstance(target, ast.Name)
            and is_view(module, item.value, known.keys(), changing)
        ):
            known[target.id] = in_terms_of(item.value, known)
        elif any(changes_in_place(item, name) for name in known):
            known.clear()  # the others may be the same memory
        else:
            for name in bound_names(item):
                known.pop(name, None)
    return known


def in_terms_of(value: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr:
    """An expression with the names of views replaced by what they are."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return copy.deepcopy(known[node.id]) if node.id in known else node

    made: ast.expr = Replace().visit(copy.deepcopy(value))
    return ast.fix_missing_locations(ast.copy_location(made, value))


def changes_in_place(statement: ast.stmt, name: str) -> bool:
    """Whether a statement writes into what has a name: `name[0] = 1`, `name.clamp_(0)`, `f(name, out=name)`."""
    parts, attributes = inside(statement, ast.Subscript), inside(statement, ast.Attribute)
    stores = [node for nodes in (parts, attributes) for node in nodes if isinstance(node.ctx, ast.Store)]
    if any(root_of(node) == name for node in stores):
        return True
    for call in inside(statement, ast.Call):
        of_name = isinstance(call.func, ast.Attribute) and root_of(call.func.value) == name
        given = of_name or any(root_of(item) == name for item in call.args)
        if given and last_name(call.func).endswith("_") and not last_name(call.func).endswith("__"):
            return True
        if any(item.arg == "out" and root_of(item.value) == name for item in call.keywords):
            return True
    return False


def _without(value: ast.expr, call: ast.Call, name: str) -> ast.expr:
    class Replace(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            return ast.Name(name, ast.Load()) if node is call else self.generic_visit(node)

    made = Replace().visit(copy.deepcopy(ast.Expression(value), {id(call): call}))  # a copy that still holds the call itself
    return ast.fix_missing_locations(made).body  # type: ignore[no-any-return]


def is_view(module: Module, value: ast.expr, names: Set[str], changing: Set[str]) -> bool:
    """Whether this is made of one of these names, and of sizes, by nothing that has another effect."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.Subscript):
        return is_view(module, value.value, names, changing) and _is_size(value.slice, changing)
    if not isinstance(value, ast.Call):
        return False
    given = [*value.args, *(item.value for item in value.keywords)]
    if any(item.arg in (None, "out") for item in value.keywords) or last_name(value.func) not in _METHODS:
        return False
    receiver = value.func.value if isinstance(value.func, ast.Attribute) else None
    if (module.expand(value.func) or "").partition(".")[0] == "torch":
        receiver, given = next(iter(given), None), given[1:]
    return (
        receiver is not None
        and is_view(module, receiver, names, changing)
        and all(_is_size(item, changing) for item in given)
    )  # fmt: skip


def _is_size(value: ast.expr, changing: Set[str]) -> bool:
    """Whether this is made of constants, of the sizes of something, and of names that stay the same in the loop: a number that
    changes would be a tensor in a captured step."""
    if isinstance(value, ast.Call):
        given = value.args[0] if value.args else None
        of = value.func.value if isinstance(value.func, ast.Attribute) else given
        return last_name(value.func) in _SIZES and not value.keywords and isinstance(of, ast.Name)
    if isinstance(value, ast.Attribute):
        name = dotted(value)
        return name is not None and (value.attr == "shape" or not {name, name.partition(".")[0]} & changing)
    if isinstance(value, ast.Name):
        return value.id not in changing
    return isinstance(value, _PARTS) and all(
        _is_size(item, changing) for item in ast.iter_child_nodes(value) if isinstance(item, ast.expr)
    )
