"""Cores shared by whoever has work: threads and batches slow each other down as `Speeds` says."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from .model import Speeds

if TYPE_CHECKING:
    from simpy import Environment, Event

__all__ = ["Cores", "Workers"]

# Sums of floats may differ by rounding: what is due within this is due now. In seconds.
_SAME = 1e-12


class _Kind:
    """Work of one kind, all of it at the same speed: it is done when the work of one that never ends reaches its end."""

    def __init__(self) -> None:
        self.done = 0.0
        self.ends: list[tuple[float, int, Event]] = []


class Cores:
    """Processor sharing in virtual time. Whenever work comes or ends, the speeds of the rest change."""

    def __init__(self, env: Environment, speeds: Speeds) -> None:
        self._env, self._speeds = env, speeds
        self._threads, self._batches = _Kind(), _Kind()
        self._since, self._serial, self._round = env.now, 0, 0
        self.busy = 0.0

    def thread(self, seconds: float) -> Event:
        """What happens when a thread has done work that takes so long alone."""
        return self._begin(self._threads, seconds)

    def batch(self, seconds: float) -> Event:
        """What happens when a batch, on all cores, has done work that takes so long alone."""
        return self._begin(self._batches, seconds)

    def _begin(self, kind: _Kind, seconds: float) -> Event:
        self._advance()
        self._serial += 1
        done = self._env.event()
        heapq.heappush(kind.ends, (kind.done + seconds, self._serial, done))
        self._plan()
        return done

    def _advance(self) -> None:
        passed = self._env.now - self._since
        self._since = self._env.now
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
            callbacks = self._env.timeout(min(waits)).callbacks
            assert callbacks is not None, "it has not happened yet"
            callbacks.append(lambda _: self._look(number))

    def _look(self, number: int) -> None:
        if number != self._round:
            return
        self._advance()
        ended: list[Event] = []
        for kind in (self._threads, self._batches):
            while kind.ends and kind.ends[0][0] <= kind.done + _SAME:
                ended.append(heapq.heappop(kind.ends)[2])
        self._plan()
        for event in ended:
            event.succeed()


class Workers:
    """Threads that take work in turn: an event loop is one, a pool of decoders several."""

    def __init__(self, env: Environment, cores: Cores, count: int) -> None:
        self._env, self._cores, self._idle = env, cores, count
        self._waiting: deque[tuple[Callable[[], float], Event]] = deque()

    def run(self, seconds: Callable[[], float]) -> Event:
        """What happens when a thread has done this; `seconds` is asked when it begins."""
        done = self._env.event()
        self._waiting.append((seconds, done))
        self._start()
        return done

    def _start(self) -> None:
        while self._idle and self._waiting:
            seconds, done = self._waiting.popleft()
            self._idle -= 1
            callbacks = self._cores.thread(seconds()).callbacks
            assert callbacks is not None, "it has not happened yet"
            callbacks.append(lambda _, done=done: self._end(done))  # type: ignore[misc]

    def _end(self, done: Event) -> None:
        self._idle += 1
        done.succeed()
        self._start()
