"""Cores shared by whoever has work: threads and batches slow each other down as `Speeds` says."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from ..simulation.clock import Clock
from .model import Speeds

__all__ = ["Cores"]

# Sums of floats may differ by rounding: what is due within this is due now. In seconds.
_SAME = 1e-12


class _Kind:
    """Work of one kind, all of it at the same speed: it is done when the work of one that never ends reaches its end."""

    def __init__(self) -> None:
        self.done = 0.0
        self.ends: list[tuple[float, int, Callable[[], object]]] = []


class Cores:
    """Processor sharing in virtual time. Whenever work comes or ends, the speeds of the rest change."""

    def __init__(self, clock: Clock, speeds: Speeds) -> None:
        self._clock, self._speeds = clock, speeds
        self._threads, self._batches = _Kind(), _Kind()
        self._since, self._serial, self._round = clock.now, 0, 0
        self.busy = 0.0

    def thread(self, seconds: float, done: Callable[[], object]) -> None:
        """Call `done` when a thread has done work that takes so long alone."""
        self._begin(self._threads, seconds, done)

    def batch(self, seconds: float, done: Callable[[], object]) -> None:
        """Call `done` when a batch, on all cores, has done work that takes so long alone."""
        self._begin(self._batches, seconds, done)

    def _begin(self, kind: _Kind, seconds: float, done: Callable[[], object]) -> None:
        self._advance()
        self._serial += 1
        heapq.heappush(kind.ends, (kind.done + seconds, self._serial, done))
        self._plan()

    def _advance(self) -> None:
        passed = self._clock.now - self._since
        self._since = self._clock.now
        if not passed:
            return
        speeds = self._speeds.at(len(self._threads.ends), len(self._batches.ends))
        for kind, speed in zip((self._threads, self._batches), speeds, strict=True):
            kind.done += speed * passed
        if self._threads.ends or self._batches.ends:
            used = self._speeds.cores if self._batches.ends else min(self._speeds.cores, len(self._threads.ends))
            self.busy += used * passed

    def _plan(self) -> None:
        """Come back when the next piece of work ends if nothing comes before."""
        self._round += 1
        number = self._round
        speeds = self._speeds.at(len(self._threads.ends), len(self._batches.ends))
        waits = [
            max(0.0, kind.ends[0][0] - kind.done) / speed
            for kind, speed in zip((self._threads, self._batches), speeds, strict=True)
            if kind.ends
        ]
        if waits:
            self._clock.after(min(waits), lambda: self._look(number))

    def _look(self, number: int) -> None:
        if number != self._round:
            return
        self._advance()
        ended: list[Callable[[], object]] = []
        for kind in (self._threads, self._batches):
            while kind.ends and kind.ends[0][0] <= kind.done + _SAME:
                ended.append(heapq.heappop(kind.ends)[2])
        self._plan()
        for done in ended:
            done()
