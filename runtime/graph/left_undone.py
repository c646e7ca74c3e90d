"""What a module's own call does and no graph's call: values that stay in attributes, hooks of a script, layers that train."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ..capture.code_reads import called_of, names_in
from ..capture.source_locations import is_users
from .observers import observers, place_of


def left_undone(modules: Sequence[nn.Module]) -> Iterator[str]:
    """In words, of a model with all in it."""
    if (
        modules
        and not getattr(modules[0], "training", True)
        and (name := next(map(_kind, training_inside(modules)), None)) is not None
    ):
        yield (
            f"a {name} is in training mode inside a model in evaluation mode, and the graph evaluates it; "
            "call eval() on the model, or the model itself where that is meant"
        )
    for hooks, key in observers(modules):
        path, line = place_of(hooks[key])
        yield (
            f"a hook ({path}:{line}) runs once, while the graph is captured: what it changes is part of the graph, what it "
            "records of later calls is nothing; call the model itself for that"
        )
    for table, name in set_for_others(modules):
        if not name.startswith("_"):
            kind = next(_kind(module) for module in modules if vars(module) is table)
            yield f"forward of {kind} sets {name!r}, which a graph's call leaves as it is; return it, or call the model itself"


def training_inside(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Those in training mode that compute something else in it."""
    return [module for module in acting_otherwise(modules) if module.training]


def acting_otherwise(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Those that compute something else in training mode: their `forward` asks for it, or that of a module that has them."""
    asking = {id(part) for module in modules if _asks_parts_for_training(module) for part in module.children()}
    return [module for module in modules if id(module) in asking or _asks_for_training(module)]


def set_for_others(modules: Sequence[nn.Module]) -> list[tuple[dict[str, Any], str]]:
    """The attributes, as tables and names, that users' `forward` sets for whoever called it: it does not read what an earlier
    call left there, and no other module does."""
    found: list[tuple[dict[str, Any], str]] = []
    for module in modules:
        code = _forward(module)
        if code is None or not is_users(code.co_filename) or "-packages" in code.co_filename:
            continue
        others = [other for other in modules if other is not module]
        names = sorted(names_in(code).made - {"training"})
        found += [(vars(module), name) for name in names if not any(_reads_of_another(other, name) for other in others)]
    return found


def _reads_of_another(module: nn.Module, name: str) -> bool:
    """Whether its `forward` reads an attribute of this name that is none of its own."""
    code = _forward(module)
    return code is not None and name in names_in(code).read and not hasattr(module, name)


def _forward(module: nn.Module) -> Any:
    return getattr(called_of(type(module)), "__code__", None)


def holds_tensors(value: Any) -> bool:
    """Whether it is a tensor, or a list, a tuple or a table of such."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(item, torch.Tensor) for item in inside)


def _asks_for_training(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return float(module.dropout) > 0
    code = _forward(module)
    return code is not None and "training" in names_in(code).read


def _asks_parts_for_training(module: nn.Module) -> bool:
    """Whether its `forward` reads `self.part.training`, or that of anything but itself."""
    code = _forward(module)
    if code is None or "training" not in names_in(code).read:
        return False
    before = ""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_ATTR" and step.argval == "training" and before not in code.co_varnames[:1]:
            return True
        before = str(step.argval[-1] if isinstance(step.argval, tuple) else step.argval)  # since 3.13 one step may load two
    return False


def _kind(module: nn.Module) -> str:
    return type(module).__name__
