"""Find where stored weights are read: which file, which entry of it, and which prefix is taken off its keys."""

from __future__ import annotations

import ast

from ..reading.calls import Calls
from ..reading.facts import CheckpointSite
from ..reading.scopes import Module, dotted, last_name
from .stored_weights import feeds_model

_KEYS = (
    "state_dict",
    "model",
    "net",
    "model_state_dict",
    "model_state",
    "model_ema",
    "ema",
    "weights",
    "network",
    "params",
    "module",
)


def find_checkpoints(module: Module, calls: Calls) -> list[CheckpointSite]:
    """Every `torch.load`, `load_state_dict_from_url` and `safetensors` read of one file."""
    found = []
    for node in module.nodes:
        if not isinstance(node, ast.Call) or not (node.args or node.keywords):
            continue
        expanded = module.expand(node.func) or ""
        loads = expanded == "torch.load" or expanded.endswith((".load_file", "load_state_dict_from_url", "model_zoo.load_url"))
        if not loads:
            continue
        scope = module.function_of(node) or module.tree
        name = _bound_to(module, node)
        argument = node.args[0] if node.args else node.keywords[0].value
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
        str(inner.slice.value)
        for inner in ast.walk(scope)
        if isinstance(inner, ast.Subscript)
        and isinstance(inner.ctx, ast.Load)
        and dotted(inner.value) == name
        and isinstance(inner.slice, ast.Constant)
        and isinstance(inner.slice.value, str)
    ]
    return next((key for known in _KEYS for key in keys if key == known), None)


def _strip(scope: ast.AST) -> str | None:
    for node in ast.walk(scope):
        if (
            isinstance(node, ast.Call)
            and last_name(node.func) in ("replace", "removeprefix", "startswith", "lstrip")
            and node.args
        ):
            value = node.args[0]
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.endswith("."):
                return value.value
    return None
