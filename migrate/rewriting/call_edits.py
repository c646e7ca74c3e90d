"""Edits inside of one call: an argument taken out, renamed or added; `.cuda()` without a GPU."""

import ast
import re
from collections.abc import Iterator

from ..reading.edits import Edit
from ..reading.names import uses
from ..reading.nodes import inside
from ..reading.scopes import Module, dotted, last_name
from .rule import Context

_ASKED = re.compile(r"cuda|gpu|device|distributed|world_size|local_rank", re.I)
_SIZED = frozenset(f"torch.{name}" for name in ("empty", "full", "ones", "rand", "randn", "zeros"))
_MADE = frozenset(
    f"torch.{name}" for name in ("arange", "eye", "FloatTensor", "from_numpy", "linspace", "LongTensor", "tensor", "Tensor")
)


def calls_of(context: Context, name: str) -> Iterator[ast.Call]:
    """The calls of an imported thing, such as "torch.load", whatever the file calls it."""
    for node in uses(context.module, name):
        parent = context.module.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            yield parent


def is_spread(call: ast.Call) -> bool:
    """Whether arguments come from `*` or `**`, so that not all of them can be seen."""
    return any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords)


def without(context: Context, call: ast.Call, gone: list[ast.expr | ast.keyword]) -> list[Edit]:
    """The edits that take arguments out of a call, each with the comma that goes with it."""
    positions, arguments = context.positions, _in_order(call)
    if all(argument in gone for argument in arguments):
        return [Edit(positions.span(arguments[0])[0], positions.span(arguments[-1])[1], "")]
    return positions.leave_out(arguments, gone)


def with_argument(context: Context, call: ast.Call, text: str, *, first: bool = False) -> Edit:
    """The edit that adds an argument to a call, last or first."""
    positions = context.positions
    arguments = _in_order(call)
    if not arguments:
        end = positions.span(call)[1] - 1
        return Edit(end, end, text)
    if first:
        start = positions.span(arguments[0])[0]
        return Edit(start, start, f"{text}, ")
    end = positions.span(arguments[-1])[1]
    return Edit(end, end, f", {text}")


def _in_order(call: ast.Call) -> list[ast.expr | ast.keyword]:
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return sorted(arguments, key=lambda item: (item.lineno, item.col_offset))


def source_of(context: Context, node: ast.expr) -> str:
    """An expression as written."""
    start, end = context.positions.span(node)
    return context.positions.text[start:end]


def truth(node: ast.expr | None) -> bool | None:
    """True or False where the source says so."""
    return bool(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, bool | int) else None


def is_hard(module: Module, call: ast.Call) -> bool:
    """Whether a call is `.cuda()`, of no GPU that it names, and nothing around it asks whether there is one."""
    node = call.func
    if not (isinstance(node, ast.Attribute) and node.attr == "cuda") or call.args:
        return False
    if any(item.arg != "non_blocking" for item in call.keywords):
        return False
    child, parent = call, module.parents.get(call)
    while parent is not None:
        if (
            isinstance(parent, ast.If | ast.IfExp | ast.While)
            and child is not parent.test
            and _ASKED.search(ast.unparse(parent.test))
        ):
            return False
        if isinstance(parent, ast.BoolOp) and _ASKED.search(ast.unparse(parent.values[0])):
            return False
        child, parent = parent, module.parents.get(parent)  # type: ignore[assignment]
    return True


def sized_as(module: Module, call: ast.Call) -> str | None:
    """The tensor of a function beside which `torch.zeros(x.size(0), 3).cuda()` makes another, if the function does not move
    that itself: the one that says its size, else the input of a module's `forward`, as for `self.mask.cuda()`, too."""
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    parts, first = [], made
    while isinstance(first, ast.Call):
        parts.append(first)
        wrapped = last_name(first.func) == "Variable" and first.args
        first = first.args[0] if wrapped else first.func.value if isinstance(first.func, ast.Attribute) else first.func
    sized = any(module.expand(part.func) in _SIZED for part in parts)
    made_here = any(module.expand(part.func) in _MADE for part in parts) or (
        made is not None and not parts and (dotted(made) or "").startswith("self.")
    )
    return beside(module, parts[-1]) if sized else beside(module, call, said=False) if made_here else None


def beside(module: Module, made: ast.Call, *, said: bool = True) -> str | None:
    """The tensor whose size is `said` where another one is made, else the input of the `forward` around it; None where the
    function moves it, and in any other function."""
    function = module.function_of(made)
    if function is None:
        return None
    sizes = [node for node in ast.walk(made) if said and isinstance(node, ast.Attribute) and node.attr in ("size", "shape")]
    names = [node.value.id for node in sizes if isinstance(node.value, ast.Name)]
    method = isinstance(function, ast.FunctionDef) and isinstance(module.parents.get(function), ast.ClassDef)
    given = function.args.args if method and function.name == "forward" else []
    if len(given) - len(function.args.defaults) > 1 and not _of_several(function, given[1]):
        names.append(given[1].arg)
    moved = {ast.unparse(node.value) for node in inside(function, ast.Attribute) if node.attr in ("cuda", "to", "cpu")}
    return next((name for name in names if name not in moved), None)


def _of_several(function: ast.AST, given: ast.arg) -> bool:
    """Whether a function takes an argument for a list of tensors: it counts, unpacks or goes through it."""
    taken = (
        node.value if isinstance(node, ast.Subscript | ast.Assign) else node.iter
        for node in ast.walk(function)
        if (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant))
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple))
        or isinstance(node, ast.For | ast.comprehension)
    )
    return any(isinstance(node, ast.Name) and node.id == given.arg for node in taken)


def moved_to(context: Context, call: ast.Call, device: str) -> list[Edit]:
    """`.cuda(` becomes `.to(device`, and what stands in the brackets stays."""
    positions = context.positions
    assert isinstance(call.func, ast.Attribute)
    end = positions.span(call.func)[1]
    opening = positions.text.index("(", end) + 1
    given = f"{device}, " if call.keywords else device
    return [Edit(end - len("cuda"), end, "to"), Edit(opening, opening, given)]
