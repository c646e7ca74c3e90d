"""Find where stored weights are read: which file, which entry of it, and which prefix is taken off its keys."""

import ast

from ..reading.calls import Calls
from ..reading.facts import CheckpointSite
from ..reading.nodes import arguments_of, inside, text_of
from ..reading.scopes import Module, dotted, last_name
from .stored_weights import feeds_model

_KEYS = (
    *("state_dict", "model", "net", "model_state_dict", "model_state", "model_ema", "ema", "weights", "network", "params"),
    "module",
)


def find_checkpoints(module: Module, calls: Calls) -> list[CheckpointSite]:
    """Every `torch.load`, `load_state_dict_from_url` and `safetensors` read of one file."""
    found = []
    for node in module.calls:
        if not (node.args or node.keywords):
            continue
        expanded = module.expand(node.func) or ""
        loads = expanded == "torch.load" or expanded.endswith((".load_file", "load_state_dict_from_url", "model_zoo.load_url"))
        if not loads:
            continue
        scope = module.function_of(node) or module.tree
        name = _bound_to(module, node)
        argument = arguments_of(node)[0]
        found.append(
            CheckpointSite(
                path=module.path,
                line=node.lineno,
                expression=ast.unparse(argument),
                key=_key(module, node, name, scope),
                strip=_strip(scope),
                weights=feeds_model(module, node, calls),
            )
        )
    return found


def _bound_to(module: Module, node: ast.expr) -> str | None:
    parent = module.parents[node]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return dotted(parent.targets[0])
    return None


def _key(module: Module, node: ast.expr, name: str | None, scope: ast.AST) -> str | None:
    parent = module.parents[node]
    if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant):
        return str(parent.slice.value)
    if name is None:
        return None
    keys = [
        text_of(inner.slice)
        for inner in inside(scope, ast.Subscript)
        if isinstance(inner.ctx, ast.Load) and dotted(inner.value) == name
    ]
    return next((key for known in _KEYS for key in keys if key == known), None)


def _strip(scope: ast.AST) -> str | None:
    loops: list[ast.For | ast.comprehension] = [*inside(scope, ast.For), *inside(scope, ast.comprehension)]
    of_model = {call for node in loops if _lists_parts(node.iter) for call in inside(node, ast.Call)}
    calls = [call for call in inside(scope, ast.Call) if call.args and call not in of_model]
    named = [call for call in calls if last_name(call.func) in ("replace", "removeprefix", "startswith", "lstrip")]
    return next((text for call in named if (text := text_of(call.args[0])) and text.endswith(".")), None)


def _lists_parts(node: ast.expr) -> bool:
    """Whether a loop goes over the names of a model's own parts, of which nothing is taken off: `net.named_parameters()`."""
    return any(last_name(call.func).startswith("named_") for call in inside(node, ast.Call))
