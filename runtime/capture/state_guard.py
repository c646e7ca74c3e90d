"""Run a module any number of times and leave no trace of it: neither in the module nor in the random number generators."""

from __future__ import annotations

import collections
import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_KINDS = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (list, dict, set, collections.deque)


@contextlib.contextmanager
def state_guard(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode within the block; after it, whatever happened, the module and all random generators are as they were.

    Put back are modes, attributes, lists and dicts in attributes (hooks are such), submodules, and the values of parameters,
    buffers and tensors in attributes. The flags are set directly: a module's own `eval()` may do more than set them.
    """
    modules = list(module.modules())
    attributes = [dict(item.__dict__) for item in modules]
    members = [[dict(item.__dict__[kind]) for kind in _KINDS] for item in modules]
    containers: dict[int, tuple[Any, Any]] = {}
    tensors: dict[int, torch.Tensor] = {id(value): value for value in (*module.parameters(), *module.buffers())}
    for held in attributes:
        for name, value in held.items():
            if name not in _KINDS:
                _collect(value, containers, tensors)
    copies = [(value, value.detach().clone()) for value in tensors.values()]
    with _same_random_numbers():
        try:
            for item in modules:
                item.training = False
            yield
        finally:
            for item, saved, groups in zip(modules, attributes, members, strict=True):
                item.__dict__.clear()
                item.__dict__.update(saved)
                for kind, entries in zip(_KINDS, groups, strict=True):
                    item.__dict__[kind].clear()
                    item.__dict__[kind].update(entries)
            for container, content in containers.values():
                _refill(container, content)
            for value, copy in copies:
                _write_back(value, copy)


def _collect(value: Any, containers: dict[int, tuple[Any, Any]], tensors: dict[int, torch.Tensor]) -> None:
    """Note the containers and tensors in an attribute's value, with a copy of what each container holds."""
    if isinstance(value, torch.Tensor):
        tensors.setdefault(id(value), value)
    elif isinstance(value, (*_CONTAINERS, tuple)) and id(value) not in containers:
        if not isinstance(value, tuple):
            containers[id(value)] = (value, dict(value) if isinstance(value, dict) else list(value))
        for inner in list(value.values() if isinstance(value, dict) else value):
            _collect(inner, containers, tensors)


def _refill(container: Any, content: Any) -> None:
    now = list(container.items()) if isinstance(container, dict) else list(container)
    then = list(content.items()) if isinstance(container, dict) else content
    if len(now) == len(then) and all(_same(one, other) for one, other in zip(now, then, strict=True)):
        return
    container.clear()
    (container.extend if isinstance(container, list | collections.deque) else container.update)(content)


def _same(one: Any, other: Any) -> bool:
    """Identity, of a dict's item that of key and value: what the container holds may have no truth value of its own."""
    return one is other or (isinstance(one, tuple) and len(one) == 2 and one[0] is other[0] and one[1] is other[1])


def _write_back(value: torch.Tensor, copy: torch.Tensor) -> None:
    """Restore a tensor's values if they changed, in the same memory if it still has the same shape."""
    if value.is_meta or value.layout != torch.strided:
        return
    if value.shape != copy.shape:
        value.data = copy
    elif not torch.equal(value.detach(), copy):
        value.data.copy_(copy)


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
