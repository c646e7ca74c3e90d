"""Small pieces of work of many threads, done together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Entry(Generic[T, R]):
    """One piece of work. `turn` is set when it is done, or when the thread that brought it has to do what waits."""

    __slots__ = ("done", "error", "item", "result", "turn")

    def __init__(self, item: T) -> None:
        self.item = item
        self.turn = threading.Event()
        self.done = False
        self.result: R
        self.error: BaseException | None = None


class Gatherer(Generic[T, R]):
    """Calls from any threads, done in batches of at most `most`, one batch at a time, in the order in which they came.

    Nobody waits for a batch to fill: while one is done, the next gathers. There is no thread of its own that would have to be
    ended: the first of those that wait does the work of all, then wakes them and the first of the next batch.
    """

    def __init__(self, work: Callable[[list[T]], Sequence[R]], most: int) -> None:
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[_Entry[T, R]] = deque()
        self._busy = False

    def __call__(self, items: Sequence[T]) -> list[R]:
        """`work`'s result for each item. Raises what `work` raised for a batch that one of them was in."""
        entries: list[_Entry[T, R]] = [_Entry(item) for item in items]
        if not entries:
            return []
        with self._lock:
            self._waiting.extend(entries)
            if not self._busy:
                self._busy = True
                entries[0].turn.set()
        for entry in entries:  # all of them, also after an error: others wait for the batch that one of them may begin
            entry.turn.wait()
            if not entry.done:
                self._lead()
        for entry in entries:
            if entry.error is not None:
                raise entry.error
        return [entry.result for entry in entries]

    def _lead(self) -> None:
        """Do a batch. Its first entry is the caller's: whoever is not busy has nobody waiting before it."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        try:
            for entry, result in zip(taken, self._work([entry.item for entry in taken]), strict=True):
                entry.result = result
        except BaseException as error:  # noqa: BLE001 - those who wait hear of it
            for entry in taken:
                entry.error = error
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._busy = following is not None
        if following is not None:
            following.turn.set()
        for entry in taken:
            entry.done = True
            entry.turn.set()
