"""The compiled graphs that a graph holds on to: so many, and the one longest unused goes first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from .compiler import Compiled

_REMEMBERED = 64  # keys of dropped graphs, which only explain
_SOON = 16  # calls
_OFTEN = 3  # drops, each soon after the one before


class LRUCache:
    """At most `most` compiled graphs by key; what is replaced or dropped is closed. The caller holds a lock."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._compiled: dict[Hashable, Compiled] = {}
        self._dropped: dict[Hashable, None] = {}
        self._uses = 0
        self._last_drop = 0
        self._drops_in_a_row = 0

    def __len__(self) -> int:
        return len(self._compiled)

    def __iter__(self) -> Iterator[Compiled]:
        """From the one longest unused to the latest."""
        return iter(tuple(self._compiled.values()))

    @property
    def thrashing(self) -> bool:
        """Whether graphs are dropped for one another again and again, with hardly a call between."""
        return self._drops_in_a_row >= _OFTEN

    def get(self, key: Hashable) -> Compiled | None:
        """What is kept under that key, if anything."""
        return self._compiled.get(key)

    def was_dropped(self, key: Hashable) -> bool:
        """Whether one was kept under that key and went, lately, to make room for another."""
        return key in self._dropped

    def use(self, key: Hashable, compiled: Compiled) -> None:
        """Keep it as the latest in use."""
        self._uses += 1
        if (stale := self._compiled.pop(key, compiled)) is not compiled:
            stale.close()
        self._compiled[key] = compiled  # at the end: the first one is the one longest unused
        self._dropped.pop(key, None)
        if len(self._compiled) > self.most:
            self._drop(next(iter(self._compiled)))

    def clear(self) -> None:
        """Close and forget all."""
        for compiled in self._compiled.values():
            compiled.close()
        self._compiled.clear()
        self._dropped.clear()

    def _drop(self, key: Hashable) -> None:
        self._compiled.pop(key).close()
        self._dropped[key] = None
        if len(self._dropped) > _REMEMBERED:
            self._dropped.pop(next(iter(self._dropped)))
        self._drops_in_a_row = self._drops_in_a_row + 1 if self._uses - self._last_drop <= _SOON else 1
        self._last_drop = self._uses
