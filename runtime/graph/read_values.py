"""What a graph's code reads beside parameters and buffers, which the graph has as constants, and whether it is what it was."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..capture.code_reads import PLAIN, Reads, content, plain

_FIXED = (*PLAIN, types.FunctionType, types.BuiltinFunctionType, type, torch.dtype, torch.device)
_ENVIRONMENT = frozenset(("environ", "getenv"))
_DERIVED = frozenset(("_reversed_padding_repeated_twice", "_headrace_evaluation"))


class ReadValues:
    """The values of attributes, globals and closures that the `forward` of modules, or another function, reads, by names that a
    person knows: ("attribute", "model.scale"), ("global", "SCALE").

    Whether something changed is asked at each call: what cannot change in place is only looked whether it is another object.
    """

    def __init__(self, code: Iterable[object], paths: Mapping[int, str], version: Callable[[torch.Tensor], Hashable]) -> None:
        """`paths` names objects by the identity of their attributes' table; `version` tells a tensor's states apart."""
        reads = Reads(code)
        self._version, self._members = version, reads.names
        self._environment = not _ENVIRONMENT.isdisjoint(reads.names)
        paths = {**{id(table): f"{kind.__qualname__}." for kind, table in reads.classes.items()}, **paths}
        seen: dict[tuple[int, str], tuple[Mapping[str, Any], str, tuple[str, str]]] = {}
        for table, name in reads.places:
            if name in reads.filled or name in _DERIVED or isinstance(table.get(name), nn.Module):
                continue
            path = paths.get(id(table))
            inside = path if path is not None else table.get("__name__") and f"{table['__name__']}."
            label = ("attribute" if path is not None or not inside else "global", f"{inside or ''}{name}")
            seen.setdefault((id(table), name), (table, name, label))
        self._tables = [table for table, _, _ in seen.values()]
        self._names = [name for _, name, _ in seen.values()]
        self._labels = [label for _, _, label in seen.values()]
        self._cells = [(name, cell) for name, cell in reads.cells if name not in reads.filled]
        self._pinned: list[Any] = []
        self._remember()
        self.first = self.named()

    def changed(self) -> bool:
        """Whether any is not what it was at first."""
        if self._identities() == self._ids and self._in_place() == self._state:
            return False
        if self.named() != self.first:
            return True
        self._remember()  # equal ones in place of those that were looked at
        return False

    def named(self) -> dict[tuple[str, str], Hashable]:
        """All of them by their labels; those that are missing are left out."""
        found = {
            label: self._plain(table[name])
            for table, name, label in zip(self._tables, self._names, self._labels, strict=True)
            if name in table
        }
        found |= {("variable", name): self._plain(content(cell)) for name, cell in self._cells}
        return found | {("global", "os.environ"): _variables()} if self._environment else found

    def _plain(self, value: Any) -> Hashable:
        return plain(value, self._version, self._members)

    def _remember(self) -> None:
        values = self._held()
        self._pinned = values  # so that their ids are not used again
        self._ids = self._identities()
        self._volatile = [index for index, value in enumerate(values) if not _is_fixed(value)]
        self._state = self._in_place()

    def _identities(self) -> list[int]:
        return list(map(id, self._held()))

    def _held(self) -> list[Any]:
        return [table.get(name) for table, name in zip(self._tables, self._names, strict=True)]

    def _in_place(self) -> list[Hashable]:
        tables, names = self._tables, self._names
        held = [self._plain(tables[index].get(names[index])) for index in self._volatile]
        held += [self._plain(content(cell)) for _, cell in self._cells]
        return [*held, _variables()] if self._environment else held


def _variables() -> Hashable:
    return frozenset(os.environ.items())


def _is_fixed(value: Any) -> bool:
    return isinstance(value, _FIXED) or (type(value) is tuple and all(map(_is_fixed, value)))
