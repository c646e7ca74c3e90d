"""Numbers and names that Python code reads beside tensors: a captured step has them as constants, and holds while they stay."""

from __future__ import annotations

import collections
import dis
import functools
import types
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, dict, set, collections.deque, torch.Tensor)
_MOST = 4  # captures for changed numbers, after which steps stay in Python
_SMALL = 1024  # elements of an array that are compared
_LIBRARIES = ("torch", "numpy", __name__.partition(".")[0])


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
        self._places: list[tuple[dict[str, Any], str]] = []
        self._cells: list[types.CellType] = []
        self._sets: str | None = None
        """A global, or a variable of a function around, that the code sets."""

    def obstacle(self, inputs: Iterable[torch.Tensor]) -> str:
        """Why a step with these inputs cannot be captured, or not for more than itself; "" where nothing says so."""
        if len(self._seen) <= _MOST:  # of more nothing is asked, and they may be others at each step
            self._seen.add(self.now())
        if any(value.requires_grad for value in inputs):
            return "the gradient of an input is asked for, which a captured step would leave out"
        if self._sets is not None:
            return f"{self._sets!r} is set by forward or the loss, which a captured step would leave as it is"
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
        read = [(name, values.get(name)) for values, name in self._places if id(values) not in but]
        return [*read, *((f"variable {index}", _content(cell)) for index, cell in enumerate(self._cells))]

    def holders(self) -> list[object]:
        """The objects that the code reads and may change, and what holds the lists and dicts among what it reads."""
        self.now()
        known = {id(vars(part)) for root in self._roots if isinstance(root, nn.Module) for part in root.modules()}
        read = self._read(but=known)
        read += [(type(root).__name__, root) for root in self._roots if not isinstance(root, types.FunctionType | nn.Module)]
        held = {name: value for name, value in read if type(value) in _CONTAINERS}
        objects = {id(value): value for _, value in read if _is_object(value)}
        return [Globals(**held), *objects.values()]

    def now(self) -> Hashable:
        """All of them as they are: equal where nothing of it changed."""
        members = [part for root in self._roots for part in (root.modules() if isinstance(root, nn.Module) else [root])]
        if (known := [id(part) for part in members]) != self._members:
            self._members = known
            self._find(members)
        return (
            tuple(_plain(values.get(name)) for values, name in self._places),
            tuple(_plain(_content(cell)) for cell in self._cells),
        )

    def _find(self, members: Iterable[object]) -> None:
        self._places, self._cells, self._sets = [], [], None
        seen: set[tuple[int, int]] = set()
        waiting: list[tuple[Any, object]] = []  # each function, with the object whose method it is
        for part in members:
            method = part if isinstance(part, types.FunctionType | types.MethodType) else _called(part)
            waiting.append((method, part))
        while waiting:
            function, own = waiting.pop()
            if isinstance(function, types.MethodType):
                own, function = function.__self__, function.__func__
            if not isinstance(function, types.FunctionType) or (id(function), id(own)) in seen:
                continue
            seen.add((id(function), id(own)))
            attributes = getattr(own, "__dict__", {})
            names, read, written, outer = _names(function.__code__)
            self._sets = self._sets or min(outer, default=None)
            for name in sorted(read - written - {"training"}):
                if name in attributes:
                    self._places.append((attributes, name))
                elif callable(method := getattr(type(own), name, None)):
                    waiting.append((method, own))
            if function.__module__ is not None and function.__module__.partition(".")[0] in _LIBRARIES:
                continue
            self._cells += function.__closure__ or ()
            for name in sorted(names & function.__globals__.keys()):
                self._places.append((function.__globals__, name))
            reached = [*(function.__globals__.get(name) for name in names), *map(_content, function.__closure__ or ())]
            waiting += [(item, None) for item in reached if isinstance(item, types.FunctionType | types.MethodType)]


def _called(part: object) -> Any:
    return getattr(type(part), "forward" if isinstance(part, nn.Module) else "__call__", None)


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]:
    """The globals that code reads, the attributes that it reads and sets, and what it sets of what is around it; that of
    functions in it, too."""
    found: tuple[set[str], ...] = (set(), set(), set(), set())
    for step in _instructions(code):
        if step.opname == "STORE_GLOBAL" or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars):
            found[3].add(step.argval)
        if step.opname == "LOAD_GLOBAL":
            found[0].add(step.argval)
        elif step.opname in ("STORE_ATTR", "DELETE_ATTR"):
            found[2].add(step.argval)
        elif "ATTR" in step.opname or step.opname == "LOAD_METHOD":
            found[1].add(step.argval)
    read, attributes, written, outer = map(frozenset, found)
    return read, attributes, written, outer


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from _instructions(item)


def _is_object(value: object) -> bool:
    """Whether it is one of a class of the user's own, with attributes."""
    if isinstance(value, type | types.ModuleType | types.FunctionType | nn.Module) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.partition(".")[0] not in _LIBRARIES


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _plain(value: Any) -> Hashable:
    """A number or a name, or what holds such alone, as it is; None for anything else."""
    if type(value) in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, torch.Tensor):  # which one; what is written into it is read where it lies
        return "tensor", id(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.shape, value.tobytes() if value.size <= _SMALL else id(value)
    if type(value) in (list, tuple) and all(type(item) in _PLAIN for item in value):
        return tuple(value)
    if type(value) is dict and all(type(item) in _PLAIN for pair in value.items() for item in pair):
        return tuple(value.items())
    if type(value) is types.SimpleNamespace or type(value).__name__ == "Namespace":  # the options of a command line
        return _plain(vars(value))
    return None
