"""The compiled graphs that a graph holds on to: so many, and the one longest unused goes first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from .compiled import Compiled

MOST = 4
"""Compiled graphs per Graph; each holds a copy of the weights in every backend it uses."""


class Kept:
    """At most `MOST` compiled graphs by key; what is replaced or dropped is closed. The caller holds a lock."""

    def __init__(self) -> None:
        self._compiled: dict[Hashable, Compiled] = {}

    def __len__(self) -> int:
        return len(self._compiled)

    def __iter__(self) -> Iterator[Compiled]:
        """From the one longest unused to the latest."""
        return iter(tuple(self._compiled.values()))

    def get(self, key: Hashable) -> Compiled | None:
        """What is kept under that key, if anything."""
        return self._compiled.get(key)

    def use(self, key: Hashable, compiled: Compiled) -> None:
        """Keep it as the latest in use."""
        if (stale := self._compiled.pop(key, compiled)) is not compiled:
            stale.close()
        self._compiled[key] = compiled  # at the end: the first one is the one longest unused
        if len(self._compiled) > MOST:
            self._compiled.pop(next(iter(self._compiled))).close()

    def clear(self) -> None:
        """Close and forget all."""
        for compiled in self._compiled.values():
            compiled.close()
        self._compiled.clear()
