"""What Python code reads beside the tensors that it is given, which a graph has as constants: attributes, globals, closures."""

from __future__ import annotations

import collections
import dis
import enum
import functools
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from .source_locations import is_users

PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum, range, type, np.dtype)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc)
_SEQUENCES = (list, tuple, collections.deque)
_SMALL = 1024  # elements of an array, and of a list or a table, that are compared
_DEEP = 4  # an attribute of an attribute of an attribute, as in cfg.model.head.scale
_LIBRARIES = ("torch", "numpy", __name__.partition(".")[0])
_IN_PLACE = frozenset(  # methods by which lists, tables and sets are filled
    ("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "popleft", "remove", "clear")
)


@dataclass(frozen=True)
class Names:
    """What one function's code names: globals that it reads, attributes that it reads and sets, variables around it that it
    sets, which of the former it fills (`self.cache[size] = grid`), as far as one line shows that, and those attributes that it
    sets before it reads them, if it does."""

    outside: frozenset[str]
    read: frozenset[str]
    written: frozenset[str]
    outer: frozenset[str]
    filled: frozenset[str]
    made: frozenset[str]


@dataclass(eq=False)
class Reads:
    """The places that the `forward` of modules, and functions and objects that are called, read: (table, name) pairs, and the
    variables of functions around.

    Functions that they call are followed, also those of modules that they name (`settings.scale`); of installed libraries'
    code the attributes alone are read. What code sets itself is its own. `filled` are names of what it fills.
    `sets` is a global, or a variable of a function around, that the code sets.
    """

    members: Iterable[object]
    places: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)
    cells: list[tuple[str, types.CellType]] = field(default_factory=list)
    sets: str | None = None
    names: frozenset[str] = frozenset()
    """Every attribute that is read and not set, of whatever."""
    filled: set[str] = field(default_factory=set)
    classes: dict[type, Mapping[str, Any]] = field(default_factory=dict)
    """Of the user's own classes the attributes, which are among the places."""

    def __post_init__(self) -> None:
        owned: dict[int, tuple[object, set[str], set[str]]] = {}
        anywhere: set[str] = set()
        seen: set[tuple[int, int]] = set()
        waiting: list[tuple[Any, object]] = []  # each function, with the object whose method it is
        for part in self.members:
            itself = isinstance(part, types.FunctionType | types.MethodType)
            waiting.append((part if itself else _called(part), part))
        while waiting:
            function, own = waiting.pop()
            while isinstance(function, functools.partial):
                function = function.func
            if isinstance(function, types.MethodType):
                own, function = function.__self__, function.__func__
            if not isinstance(function, types.FunctionType) or (id(function), id(own)) in seen:
                continue
            seen.add((id(function), id(own)))
            found = names_in(function.__code__)
            self.sets = self.sets or min(found.outer, default=None)
            _, read, written = owned.setdefault(id(own), (own, set(), set()))
            read |= found.read
            written |= found.written
            self.filled |= found.filled
            if not isinstance(own, nn.Module):
                anywhere |= found.read
            waiting += [(item, own) for item in self._methods(own, found)]
            if not _is_librarys(function):
                waiting += self._beside(function, found, own)
        self.names = frozenset().union(*(read for _, read, _ in owned.values()))
        self.names -= frozenset().union(*(written for _, _, written in owned.values()))
        for own, read, written in owned.values():
            attributes = getattr(own, "__dict__", {})
            named = (read | (anywhere if isinstance(own, nn.Module) else set())) - written - {"training"}
            self.places += [(attributes, name) for name in sorted(named & attributes.keys())]
            for table in self._class_tables(own):  # an attribute of the object's own may come in place of its class's
                known = sorted(name for name in named & table.keys() if not hasattr(table[name], "__get__"))
                self.places += [(place, name) for name in known for place in (table, attributes)]

    def _class_tables(self, own: object) -> list[Mapping[str, Any]]:
        """The attributes of an object's classes that are the user's own, one and the same table for all their objects."""
        own_kinds = [kind for kind in type(own).__mro__ if kind.__module__.partition(".")[0] not in (*_LIBRARIES, "builtins")]
        return [self.classes.setdefault(kind, vars(kind)) for kind in own_kinds]

    @staticmethod
    def _methods(own: object, found: Names) -> Iterator[Any]:
        """What the code may call of its own object: methods, properties, functions and callable objects in attributes."""
        attributes = getattr(own, "__dict__", {})
        for name in sorted(found.read):
            value = attributes[name] if name in attributes else getattr(type(own), name, None)
            if isinstance(value, property):
                yield value.fget
            elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
                yield value
            elif name in attributes and is_object(value) and (call := _called(value)) is not None:
                yield types.MethodType(call, value)

    def _beside(self, function: types.FunctionType, found: Names, own: object) -> list[tuple[Any, object]]:
        """Note what is read around the code, and give the functions among it."""
        tables, reached = [(function.__globals__, found.outside)], []
        for name in found.outside:
            value = function.__globals__.get(name)
            if isinstance(value, types.ModuleType) and not _is_installed(value):
                tables.append((vars(value), found.read))
        for table, names in tables:
            here = sorted(names & table.keys())
            self.places += [(table, name) for name in here if not isinstance(table[name], types.ModuleType)]
            reached += [table[name] for name in here]
        self.cells += zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        calls = (types.FunctionType, types.MethodType)
        around = [content(cell) for cell in function.__closure__ or ()]  # a decorated method is one of them
        return [(item, None) for item in reached if isinstance(item, calls)] + [
            (item, own) for item in around if isinstance(item, calls)
        ]


def _called(part: object) -> Any:
    """The function that runs when it is called: a module's `forward`."""
    if isinstance(part, nn.Module) and "forward" in vars(part):
        return vars(part)["forward"]
    return called_of(type(part))


def called_of(kind: type) -> Any:
    """The same of a class; TorchScript's, which computes it, has none."""
    name = "forward" if issubclass(kind, nn.Module) else "__call__"
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)


def _is_librarys(function: types.FunctionType) -> bool:
    name = function.__module__
    return (name is not None and name.partition(".")[0] in _LIBRARIES) or "-packages" in function.__code__.co_filename


def _is_installed(module: types.ModuleType) -> bool:
    path = getattr(module, "__file__", None) or ""
    return not is_users(path) or "-packages" in path


@functools.cache
def names_in(code: types.CodeType) -> Names:
    """Those of code and of functions in it."""
    outside, read, written, outer, filled, made = (set[str]() for _ in range(6))
    line: int | None = None
    on_line: set[str] = set()
    for own, step in _instructions(code):
        if step.positions is not None and step.positions.lineno != line:
            line, on_line = step.positions.lineno, set()
        if step.opname == "STORE_GLOBAL" or (step.opname == "STORE_DEREF" and step.argval in own.co_freevars):
            outer.add(step.argval)
        if step.opname == "LOAD_GLOBAL":
            outside.add(step.argval)
            on_line.add(step.argval)
        elif step.opname == "LOAD_DEREF":
            on_line.add(step.argval)
        elif step.opname in ("STORE_ATTR", "DELETE_ATTR"):
            made |= {step.argval} - read
            written.add(step.argval)
        elif step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            filled |= on_line
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            if step.argval in _IN_PLACE:
                filled |= on_line
            read.add(step.argval)
            on_line.add(step.argval)
    return Names(*map(frozenset, (outside, read, written, outer, filled, made)))


def _instructions(code: types.CodeType) -> Iterator[tuple[types.CodeType, dis.Instruction]]:
    for step in dis.get_instructions(code):
        yield code, step
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from _instructions(item)


def content(cell: types.CellType) -> Any:
    """What is in it; None where nothing is yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def is_object(value: object) -> bool:
    """Whether it is one of a class of the user's own, with attributes."""
    if isinstance(value, type | types.ModuleType | types.FunctionType | nn.Module) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.partition(".")[0] not in _LIBRARIES


def plain(
    value: Any, tensor: Callable[[torch.Tensor], Hashable], names: frozenset[str] = frozenset(), depth: int = _DEEP
) -> Hashable:
    """A value as what is equal where it is: numbers and names as they are, tensors as `tensor` has them, functions by their
    identity, and what holds such; of an object the attributes among `names`. None for anything else."""
    if type(value) in PLAIN:
        return type(value).__name__, value
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.shape, value.tobytes() if value.size <= _SMALL and not value.dtype.hasobject else id(value)
    if isinstance(value, _NAMED):
        return type(value).__name__, str(value)
    if isinstance(value, types.MethodType):
        return "method", id(value.__func__), id(value.__self__)
    if isinstance(value, _FUNCTIONS):
        return "function", id(value)
    if isinstance(value, nn.Module):
        return "module", id(value)
    if not depth:
        return None

    def inside(item: Any) -> Hashable:
        return plain(item, tensor, names, depth - 1)

    if isinstance(value, slice):
        return "slice", inside(value.start), inside(value.stop), inside(value.step)
    if isinstance(value, functools.partial):
        return inside(value.func), inside(value.args), inside(value.keywords)
    if isinstance(value, Mapping | set | frozenset | list | tuple | collections.deque) and len(value) > _SMALL:
        return len(value)
    if isinstance(value, Mapping):
        return tuple((str(key), inside(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(inside, value))
    if isinstance(value, _SEQUENCES):
        return tuple(map(inside, value))
    if type(value).__name__ in ("SimpleNamespace", "Namespace"):  # the options of a command line
        return inside(vars(value))
    if is_object(value):
        return tuple((name, inside(vars(value)[name])) for name in sorted(names & vars(value).keys()))
    return None
