"""Has a module changed since its graph was captured, and what of it? Cheap enough to ask at every call."""

from __future__ import annotations

import contextlib
import dis
import functools
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..base.lock import LOCK

_PLAIN = (bool, int, float, complex, str, bytes)
_NAMED = 3  # names that an explanation lists


def held_in(values: Mapping[str, Any]) -> Iterator[tuple[str, nn.Module | torch.Tensor]]:
    """The modules and tensors among named values, also inside lists, tuples and dicts, by the expressions that reach them."""
    for name, value in values.items():
        if isinstance(value, nn.Module | torch.Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from held_in({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif isinstance(value, dict):
            yield from held_in({f"{name}[{key!r}]": item for key, item in value.items()})


def modules_in(values: Mapping[str, Any]) -> list[tuple[str, nn.Module]]:
    """The modules among them; one that is reached in two ways comes twice."""
    return [(name, value) for name, value in held_in(values) if isinstance(value, nn.Module)]


def distinct_modules(values: Mapping[str, Any]) -> list[nn.Module]:
    """The modules among them, each once."""
    return list(dict.fromkeys(module for _, module in modules_in(values)))


class Watch:
    """Remembers which modules, parameters, buffers and tensors a graph was captured from, and in which version.

    `owner` is the graph, which is not kept alive by it. Sees in-place updates (optimizer steps, load_state_dict) and whatever
    was replaced: parameters, submodules, attributes of the graph, and the numbers and names among the attributes that `build`
    or a module's `forward` reads, which a graph has as constants. It does not see writes through `parameter.data` in place,
    which torch hides from version counters.
    """

    def __init__(self, owner: object) -> None:
        self._owner = weakref.ref(owner)
        with LOCK:  # another graph may have these modules under capture
            self._remember(owner)

    def _remember(self, owner: object) -> None:
        attributes = vars(owner)
        self._tops = [name for name, value in attributes.items() if any(True for _ in held_in({name: value}))]
        members: dict[nn.Module, str] = {}
        for name, module in modules_in(attributes):
            for path, member in module.named_modules():
                members.setdefault(member, f"{name}.{path}" if path else name)
        self._members = members
        self._children = [(name, member._modules) for member, name in members.items()]
        self._held = [
            (kind, name, held)
            for member, name in members.items()
            for kind, held in (("parameter", member._parameters), ("buffer", member._buffers))
        ]
        self._read = [name for name in _read_by(type(owner), "build") if name in attributes]  # type: ignore[arg-type]
        self._options = [
            (f"{path}.{name}", vars(member), name)
            for member, path in members.items()
            if not type(member).__module__.startswith("torch.")
            for name in _read_by(type(member), "forward")  # type: ignore[arg-type]
            if name in vars(member)
        ]
        # Holding modules and tensors keeps their ids from being used again.
        self._pinned = [dict(self._tops_now()), *(list(held.values()) for _, _, held in self._held)]
        self._state = self._look()
        self._labels = self._label()

    def changed(self) -> bool:
        """Whether anything is not as it was."""
        with contextlib.suppress(RuntimeError):  # of tensors that stand in for the parameters while they are captured
            if self._look() == self._state:
                return False
        with LOCK:
            return self._look() != self._state

    def why(self) -> str:
        """What is not as it was, by its name: "parameter model.head.weight was replaced"; "" where all is."""
        before = dict(zip(self._labels, _flat(self._state), strict=True))
        now = dict(zip(self._label(), _flat(self._look()), strict=True))
        changes: dict[tuple[str, str], list[str]] = {}
        for label in {**before, **now}:
            if (verb := _verb(before.get(label), now.get(label))) is not None:
                changes.setdefault((label[0], verb), []).append(label[1])
        return "; ".join(_sentence(kind, verb, names) for (kind, verb), names in changes.items())

    def _tops_now(self) -> Iterator[tuple[str, nn.Module | torch.Tensor]]:
        attributes = vars(self._owner())
        return held_in({name: attributes[name] for name in self._tops if name in attributes})

    def _look(self) -> tuple[Any, ...]:
        """What `_flat` makes one list of, in the order of `_label`."""
        tops = tuple(_version(item) if isinstance(item, torch.Tensor) else id(item) for _, item in self._tops_now())
        children = tuple(id(child) for _, group in self._children for child in group.values())
        held = tuple(_version(value) for _, _, group in self._held for value in group.values() if value is not None)
        own = vars(self._owner())
        settings = (_plain(own.get(name)) for name in self._read)
        return tops, children, held, (*settings, *(_plain(attributes.get(name)) for _, attributes, name in self._options))

    def _label(self) -> list[tuple[str, str]]:
        """(kind, name) of everything that `_look` looks at."""
        tops = [("tensor" if isinstance(item, torch.Tensor) else "module", name) for name, item in self._tops_now()]
        children = [("module", f"{name}.{key}") for name, group in self._children for key, _ in group.items()]
        held = [
            (kind, f"{name}.{key}") for kind, name, group in self._held for key, value in group.items() if value is not None
        ]
        settings = [("attribute", name) for name in (*self._read, *(name for name, _, _ in self._options))]
        return [*tops, *children, *held, *settings]


@functools.cache
def _read_by(kind: type, method: str) -> tuple[str, ...]:
    """The public attributes that a method reads, and the methods that it calls, but does not set."""
    read: set[str] = set()
    written: set[str] = set()
    seen: set[types.CodeType] = set()
    waiting = [getattr(getattr(kind, method, None), "__code__", None)]
    while waiting:
        if (code := waiting.pop()) is None or code in seen:
            continue
        seen.add(code)
        waiting += [item for item in code.co_consts if isinstance(item, types.CodeType)]
        for step in dis.get_instructions(code):
            if step.opname in ("STORE_ATTR", "DELETE_ATTR"):
                written.add(step.argval)
            elif "ATTR" in step.opname or step.opname == "LOAD_METHOD":
                read.add(step.argval)
                waiting.append(getattr(getattr(kind, str(step.argval), None), "__code__", None))
    return tuple(sorted(name for name in read - written - {"training"} if not name.startswith("_")))


def _plain(value: Any) -> str | None:
    """A number or a name, or a list of such, as text that is equal where they are; None for anything else."""
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) in (list, tuple) and all(type(item) in _PLAIN for item in value):
        return repr(value)
    return None


def _flat(state: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [item for part in state for item in part]


def _verb(before: Any, now: Any) -> str | None:
    if before == now:
        return None
    if before is None or now is None:
        return "added" if before is None else "removed"
    if isinstance(before, str):
        return "changed"
    same = isinstance(before, tuple) and before[0] == now[0]
    return "written" if same else "replaced"


def _sentence(kind: str, verb: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"{kind} {names[0]} was {verb}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{kind}s {', '.join(names[:_NAMED])}{more} were {verb}"


def _version(value: torch.Tensor) -> tuple[int, int, int]:
    return id(value), 0 if value.is_inference() else value._version, value.data_ptr()
