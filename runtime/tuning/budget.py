"""How much of `max_tuning_seconds` is used up: by work done, so that what else a machine does changes no plan. Torch-free."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_MOST_WALL = 4.0  # times the seconds: a process that waits for a core, or for a disk, gets no answer for that long at most
_OVERTIME = 1.25  # times the seconds, for what tells most of what is left


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


class Budget:
    """Seconds as they would pass on a quiet machine, used and left. Used by the thread that made it.

    On a CPU what passes is work: the thread's own, or what all threads and child processes did, divided among `threads`, if
    that is more. So twenty seconds of work beside busy neighbors are twenty, although they take forty; four times the seconds
    by the clock on the wall end it in any case. On a GPU the process waits for the device, so there the wall's clock counts.
    """

    def __init__(
        self,
        seconds: float,
        *,
        threads: int,
        device: str = "cpu",
        wall: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = time.thread_time,
        everyone: Callable[[], float] = cpu_seconds,
    ) -> None:
        self.seconds, self._threads, self._by_wall = seconds, threads, device != "cpu"
        self._wall, self._own, self._everyone = wall, own, everyone
        self._begin, self._used = wall(), 0.0
        self._last = own(), everyone()

    @property
    def used(self) -> float:
        """Seconds of work so far. What one thread did and what many did add up where it is asked between them."""
        if self._by_wall:
            return self._wall() - self._begin
        now = self._own(), self._everyone()
        self._used += max(now[0] - self._last[0], (now[1] - self._last[1]) / self._threads)
        self._last = now
        return self._used

    @property
    def pace(self) -> float:
        """Seconds of work in one by the wall's clock, at most 1: what was timed by the wall is so much work."""
        passed = self._wall() - self._begin
        return min(1.0, self.used / passed) if passed > 0 else 1.0

    @property
    def left(self) -> float:
        """Seconds of work, 0 where they are over."""
        if self._wall() - self._begin > _MOST_WALL * self.seconds:
            return 0.0
        return max(0.0, self.seconds - self.used)

    def bears(self, needed: float) -> bool:
        """Whether so many seconds of work may still be done, if need be a little beyond the time."""
        return self.used + needed <= _OVERTIME * self.seconds
