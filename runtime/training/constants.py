"""Numbers and names that Python code reads beside tensors: a captured step has them as constants, and holds while they stay."""

from __future__ import annotations

import collections
import types
from collections.abc import Collection, Hashable, Iterable
from typing import Any

import torch
from torch import nn

from ..capture.code_reads import Reads, content, is_object, plain

_CONTAINERS = (list, dict, set, collections.deque, torch.Tensor)
_MOST = 4  # captures for changed numbers, after which steps stay in Python


class Globals(types.SimpleNamespace):
    """Lists, dicts and tensors that code reads and that are no attributes."""


class Constants:
    """What the `forward` of modules, and functions and objects that are called, read of attributes, globals and closures.

    Functions that they call are followed where they are none of torch's or NumPy's.
    """

    def __init__(self, roots: Iterable[object]) -> None:
        self._roots = list(roots)
        self._seen: set[Hashable] = set()
        self._members: list[int] | None = None
        self._reads = Reads(())

    def obstacle(self, inputs: Iterable[torch.Tensor]) -> str:
        """Why a step with these inputs cannot be captured, or not for more than itself; "" where nothing says so."""
        if len(self._seen) <= _MOST:  # of more nothing is asked, and they may be others at each step
            self._seen.add(self.now())
        if any(value.requires_grad for value in inputs):
            return "the gradient of an input is asked for, which a captured step would leave out"
        if self._reads.sets is not None:
            return f"{self._reads.sets!r} is set by forward or the loss, which a captured step would leave as it is"
        if (name := self._wants_gradients()) is not None:
            return f"forward or the loss reads {name!r}, which wants a gradient and belongs to none of the graph's modules"
        if len(self._seen) > _MOST:
            return "numbers that forward or the loss reads, and that are no tensors, change from step to step"
        return ""

    def _wants_gradients(self) -> str | None:
        """The name by which the code reads a tensor that wants a gradient, or a module that has such, beside the roots."""
        own = {id(part) for root in self._roots if isinstance(root, nn.Module) for part in root.modules()}
        own |= {id(part) for root in self._roots if isinstance(root, nn.Module) for part in root.parameters()}
        for name, value in self._read():
            for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]:
                weights = list(item.parameters()) if isinstance(item, nn.Module) else [item]
                if any(isinstance(part, torch.Tensor) and part.requires_grad and id(part) not in own for part in weights):
                    return name
        return None

    def _read(self, but: Collection[int] = ()) -> list[tuple[str, Any]]:
        """What is read, by its name; `but` are tables of names that are left out."""
        read = [(name, values.get(name)) for values, name in self._reads.places if id(values) not in but]
        return [*read, *((name, content(cell)) for name, cell in self._reads.cells)]

    def holders(self) -> list[object]:
        """The objects that the code reads and may change, and what holds the lists and dicts among what it reads."""
        self.now()
        known = {id(vars(part)) for root in self._roots if isinstance(root, nn.Module) for part in root.modules()}
        read = self._read(but=known)
        read += [(type(root).__name__, root) for root in self._roots if not isinstance(root, types.FunctionType | nn.Module)]
        held = {name: value for name, value in read if type(value) in _CONTAINERS}
        objects = {id(value): value for _, value in read if is_object(value)}
        return [Globals(**held), *objects.values()]

    def now(self) -> Hashable:
        """All of them as they are: equal where nothing of it changed."""
        members = [part for root in self._roots for part in (root.modules() if isinstance(root, nn.Module) else [root])]
        if (known := [id(part) for part in members]) != self._members:
            self._members = known
            self._reads = Reads(members)
        names, filled = self._reads.names, self._reads.filled  # what the code fills itself is a side effect, and told as such
        return (
            tuple(plain(values.get(name), _which, names) for values, name in self._reads.places if name not in filled),
            tuple(plain(content(cell), _which, names) for name, cell in self._reads.cells if name not in filled),
        )


def _which(value: torch.Tensor) -> Hashable:
    """Which one; what is written into it is read where it lies."""
    return "tensor", id(value)
