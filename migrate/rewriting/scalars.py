"""Functions of the repository whose results were vectors of one number before torch 0.4, and have no dimension today."""

import ast

from ..reading.nodes import inside, values_of
from ..reading.scopes import Function, Module, last_name, local_names

_ELEMENTWISE = frozenset(
    ["mul", "mul_", "div", "div_", "add", "add_", "sub", "sub_", "float", "double", "long", "cpu", "cuda", "to", "detach"]
)


def returns_scalars(module: Module, call: ast.Call) -> bool:
    """Whether a call's function returns a list to which it appends sums over all of a flattened tensor, and nothing else.

    Such is the `accuracy` of many repositories: `res.append(correct[:k].view(-1).float().sum(0).mul_(100.0 / batch_size))`.
    """
    target = module.find_callee(call.func)
    if target is None or not isinstance(target[1], ast.FunctionDef):
        return False
    function = target[1]
    returned = [node.value for node in inside(function, ast.Return)]
    names = {value.id for value in returned if isinstance(value, ast.Name)}
    if len(names) != 1 or len(returned) != 1:
        return False
    name = names.pop()
    if name not in local_names(function) or not all(_is_empty_list(value) for value in values_of(function, name)):
        return False
    calls = inside(function, ast.Call)
    changed = [node for node in calls if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == name]
    return bool(changed) and all(
        last_name(node.func) == "append" and len(node.args) == 1 and _is_sum(function, node.args[0]) for node in changed
    )


def _is_empty_list(value: ast.expr) -> bool:
    return isinstance(value, ast.List) and not value.elts


def _is_sum(function: Function, value: ast.expr, depth: int = 0) -> bool:
    """A sum over the only dimension of a flattened tensor, perhaps scaled afterwards."""
    if isinstance(value, ast.Name):
        made = values_of(function, value.id)
        return depth < 5 and bool(made) and all(_is_sum(function, item, depth + 1) for item in made)
    if isinstance(value, ast.BinOp):
        return _is_sum(function, value.left, depth) and not isinstance(value.right, ast.List | ast.Tuple)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if value.func.attr in _ELEMENTWISE:
        return _is_sum(function, value.func.value, depth)
    if value.func.attr != "sum" or value.keywords:
        return False
    over = [ast.unparse(item) for item in value.args]
    return over in (["0"], ["-1"]) and _is_flat(value.func.value)


def _is_flat(value: ast.expr) -> bool:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        arguments = [ast.unparse(item) for item in value.args]
        if value.func.attr in ("view", "reshape") and arguments == ["-1"]:
            return True
        if value.func.attr == "flatten" and not arguments:
            return True
        if value.func.attr not in _ELEMENTWISE:
            return False
        value = value.func.value
    return False
