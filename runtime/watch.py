"""Has a module changed since its graph was captured? Cheap enough to ask at every call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

State = tuple[Any, ...]


def modules_in(values: Iterable[Any]) -> Iterator[torch.nn.Module]:
    """The modules among values, also inside lists, tuples and dicts."""
    for value in values:
        if isinstance(value, torch.nn.Module):
            yield value
        elif isinstance(value, list | tuple):
            yield from modules_in(value)
        elif isinstance(value, dict):
            yield from modules_in(value.values())


class Watch:
    """Remembers which modules, parameters and buffers a graph was captured from, and in which version.

    Sees in-place updates (optimiser steps, load_state_dict), replaced parameters and replaced submodules. It does not see
    writes through `parameter.data` in place, which torch hides from version counters.
    """

    def __init__(self, modules: Iterable[torch.nn.Module], tensors: Iterable[torch.Tensor] = ()) -> None:
        members = list(dict.fromkeys(member for module in modules for member in module.modules()))
        # Holding the tensors keeps their ids from being used again.
        self._children = [member._modules for member in members]
        self._held = [held for member in members for held in (member._parameters, member._buffers)]
        self._tensors = list(tensors)
        self._pinned = [list(held.values()) for held in self._held]
        self._state = self._look()

    def changed(self) -> bool:
        """Whether anything is not as it was."""
        return self._look() != self._state

    def _look(self) -> State:
        children = tuple(id(child) for group in self._children for child in group.values())
        held = tuple(_version(value) for group in self._held for value in group.values() if value is not None)
        return children, held, tuple(_version(value) for value in self._tensors)


def _version(value: torch.Tensor) -> tuple[int, int, int]:
    return id(value), 0 if value.is_inference() else value._version, value.data_ptr()
