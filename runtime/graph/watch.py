"""Has a module changed since its graph was captured, and what of it? Cheap enough to ask at every call."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..base.lock import LOCK
from ..capture.code_reads import called_of
from .read_values import ReadValues
from .weight_samples import Sample, state_of

_VALUES = ("attribute", "global", "variable", "forward hook", "forward pre-hook")
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

    `owner` is the graph, which is not kept alive by it. Sees in-place updates (optimizer steps, load_state_dict), whatever was
    replaced (parameters, submodules, `forward`, hooks, attributes of the graph), and the numbers, names, arrays, tensors and
    functions among the attributes, globals and closures that `build` or a module's `forward` reads, which a graph has as
    constants. Of writes that torch hides from version counters, through `parameter.data` in place, it sees those that change
    one of sixteen numbers, spread over a tensor in the CPU's memory: averages of weights and masks, not a write to one element.
    """

    def __init__(self, owner: object) -> None:
        self._owner = weakref.ref(owner)
        with LOCK.beside():  # another graph may have these modules under capture
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
        self._hooks = [
            (kind, name, held)
            for member, name in members.items()
            for kind, held in (
                ("forward hook", vars(member).get("_forward_hooks")),
                ("forward pre-hook", vars(member).get("_forward_pre_hooks")),
            )
            if held is not None
        ]
        self._kinds: list[Any] = [
            kind for kind in dict.fromkeys(map(type, members)) if isinstance(called_of(kind), types.FunctionType)
        ]
        self._called = [(f"{path}.forward" if path else "forward", vars(member)) for member, path in members.items()]
        self._samples = {
            id(value): Sample(value) for _, _, group in self._held for value in group.values() if value is not None
        }
        build = getattr(type(owner), "build", None)
        code = [*members, *([types.MethodType(build, owner)] if build is not None else [])]
        paths = {id(vars(member)): f"{path}." for member, path in members.items()} | {id(attributes): ""}
        self._values = ReadValues(code, paths, state_of)
        # Holding modules and tensors keeps their ids from being used again.
        self._pinned = [dict(self._tops_now()), *(list(held.values()) for _, _, held in self._held)]
        self._state = self._look()
        self._labels = self._label()

    def changed(self) -> bool:
        """Whether anything is not as it was."""
        with contextlib.suppress(RuntimeError):  # of tensors that stand in for the parameters while they are captured
            if self._look() == self._state:
                return self._values.changed()
        with LOCK.beside():
            return self._look() != self._state or self._values.changed()

    def why(self) -> str:
        """What is not as it was, by its name: "parameter model.head.weight was replaced"; "" where all is."""
        before = dict(zip(self._labels, _flat(self._state), strict=True)) | self._values.first
        now = dict(zip(self._label(), _flat(self._look()), strict=True)) | self._values.named()
        changes: dict[tuple[str, str], list[str]] = {}
        for label in {**before, **now}:
            if (verb := _verb(label, before.get(label), now.get(label))) is not None:
                changes.setdefault((label[0], verb), []).append(label[1])
        return "; ".join(_sentence(kind, verb, names) for (kind, verb), names in changes.items())

    def _tops_now(self) -> Iterator[tuple[str, nn.Module | torch.Tensor]]:
        attributes = vars(self._owner())
        return held_in({name: attributes[name] for name in self._tops if name in attributes})

    def _look(self) -> tuple[list[Any], ...]:
        """What `_flat` makes one list of, in the order of `_label`."""
        tops = [state_of(item) if isinstance(item, torch.Tensor) else id(item) for _, item in self._tops_now()]
        children = [id(child) for _, group in self._children if group for child in group.values()]
        samples = self._samples
        held = [
            state_of(value) if (sample := samples.get(id(value))) is None else sample.state(value)
            for _, _, group in self._held
            if group
            for value in group.values()
            if value is not None
        ]
        hooks = [tuple(entries) if entries else () for _, _, entries in self._hooks]
        methods = [id(kind.forward) for kind in self._kinds]
        own = [id(table["forward"]) if "forward" in table else 0 for _, table in self._called]
        return tops, children, held, hooks, methods, own

    def _label(self) -> list[tuple[str, str]]:
        """(kind, name) of everything that `_look` looks at."""
        tops = [("tensor" if isinstance(item, torch.Tensor) else "module", name) for name, item in self._tops_now()]
        children = [("module", f"{name}.{key}") for name, group in self._children for key, _ in group.items()]
        held = [
            (kind, f"{name}.{key}") for kind, name, group in self._held for key, value in group.items() if value is not None
        ]
        methods = [("method", f"{kind.__name__}.forward") for kind in self._kinds]
        methods += [("method", name) for name, _ in self._called]
        return [*tops, *children, *held, *((kind, name) for kind, name, _ in self._hooks), *methods]


def _flat(state: Iterable[list[Any]]) -> list[Any]:
    return [item for part in state for item in part]


def _verb(label: tuple[str, str], before: Any, now: Any) -> str | None:
    if before == now:
        return None
    if before is None or now is None:
        return "added" if before is None else "removed"
    if label[0] in _VALUES:
        return "changed"
    if isinstance(before, int):  # which one it is
        return "replaced"
    return "written" if before[0] == now[0] else "replaced"


def _sentence(kind: str, verb: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"{kind} {names[0]} was {verb}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{kind}s {', '.join(names[:_NAMED])}{more} were {verb}"
