"""What Python code does beside tensor operations: a captured step would do it while it is traced, and never again."""

from __future__ import annotations

import collections
import contextlib
import copy
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from ...errors import Obstacle

_TORCH = str(Path(torch.__file__).parent)
_CONTAINERS = (list, dict, set, collections.deque)
_READS = {
    torch.Tensor.item: "item()",
    torch.Tensor.tolist: "tolist()",
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__float__: "float()",
    torch.Tensor.__int__: "int()",
    torch.Tensor.__index__: "an index",
    torch.Tensor.__bool__: "if, and, or, not",
}


class SideEffectError(Exception):
    """What the code does that a captured step cannot."""


class ValuesStayInside(TorchFunctionMode):  # type: ignore[misc]
    """Within it, user code that reads a Python value out of a tensor raises SideEffectError with its file and line."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        caller = sys._getframe(1)
        if func in _READS and not caller.f_code.co_filename.startswith(_TORCH):
            message = f"a Python value is read out of a tensor here ({_READS[func]}); keep it a tensor, or use torch.where"
            raise SideEffectError(str(Obstacle("PG120", message, caller.f_code.co_filename, caller.f_lineno)))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def undone(owners: Iterable[object], parameters: Sequence[torch.Tensor]) -> Iterator[list[str]]:
    """What the block does to attributes of these objects, to gradients and to Python's and NumPy's random numbers is undone.

    Looks into lists, dicts, sets, tensors and plain objects that are attributes, one level deep. The list that it gives
    says after the block what was changed.
    """
    saved = [(owner, _attributes(owner)) for owner in _with_helpers(owners)]
    gradients = [value.grad for value in parameters]
    draws = random.getstate(), np.random.get_state(legacy=False)
    changed: list[str] = []
    try:
        yield changed
        changed += filter(None, (_changed(owner, before) for owner, before in saved))
        if random.getstate() != draws[0] or not _same_draws(np.random.get_state(legacy=False), draws[1]):
            changed.append("build draws random numbers from Python or NumPy; draw them from torch")
    finally:
        for owner, before in saved:
            _restore(owner, before)
        for value, gradient in zip(parameters, gradients, strict=True):
            value.grad = gradient
        random.setstate(draws[0])
        np.random.set_state(draws[1])


def written_constant(program: GraphModule) -> str | None:
    """The first operation that writes to a tensor which is neither the state of a module or optimizer nor made in the step."""
    aliases: set[Node] = set()
    for node in program.graph.nodes:
        if node.op == "get_attr":
            aliases.add(node)
        schema = getattr(node.target, "_schema", None)
        for given, argument in zip(node.args, schema.arguments if schema else ()):  # noqa: B905 - trailing defaults are left out
            if argument.alias_info is None or not aliases.intersection(_nodes(given)):
                continue
            if argument.alias_info.is_write:
                return str(node.target)
            aliases.add(node)
    return None


def _nodes(given: Any) -> list[Node]:
    return [item for item in (given if isinstance(given, list | tuple) else [given]) if isinstance(item, Node)]


def _with_helpers(owners: Iterable[object]) -> list[object]:
    """The objects, and the plain ones among their attributes (a meter of the loss, say)."""
    found: dict[int, object] = {}
    for owner in owners:
        found[id(owner)] = owner
        for value in vars(owner).values():
            if hasattr(value, "__dict__") and not callable(value) and type(value).__module__.split(".")[0] not in _KNOWN:
                found.setdefault(id(value), value)
    return list(found.values())


_KNOWN = {"torch", "numpy", __name__.split(".")[0]}


def _attributes(owner: object) -> dict[str, tuple[Any, Any]]:
    """Each attribute, and what is in it if it is a container or a tensor."""
    return {name: (value, _copied(value)) for name, value in vars(owner).items()}


def _copied(value: Any) -> Any:
    if type(value) is torch.Tensor and not value.requires_grad:
        return value.clone()
    return copy.copy(value) if type(value) in _CONTAINERS else None


def _changed(owner: object, before: dict[str, tuple[Any, Any]]) -> str | None:
    now = vars(owner)
    for name in [*before, *(name for name in now if name not in before)]:
        value, content = before.get(name, (None, None))
        if (
            name not in now
            or name not in before
            or now[name] is not value
            or (content is not None and not isinstance(value, torch.Tensor) and _ids(value) != _ids(content))
        ):
            return f"build changes {name!r} of {type(owner).__name__}, which a captured step would leave as it is"
    return None


def _ids(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: id(value) for key, value in content.items()}
    return {id(value) for value in content} if isinstance(content, set) else [id(value) for value in content]


def _restore(owner: object, before: dict[str, tuple[Any, Any]]) -> None:
    now = vars(owner)
    for name in set(now) - set(before):
        del now[name]
    for name, (value, content) in before.items():
        now[name] = value
        if isinstance(content, torch.Tensor):
            value.copy_(content)
        elif content is not None and _ids(value) != _ids(content):
            value.clear()
            fill: Callable[[Any], None] = value.update if isinstance(value, dict | set) else value.extend
            fill(content)


def _same_draws(one: Any, two: Any) -> bool:
    return repr(one["state"]["pos"]) == repr(two["state"]["pos"]) and np.array_equal(one["state"]["key"], two["state"]["key"])
