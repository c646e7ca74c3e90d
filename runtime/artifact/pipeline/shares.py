"""What a stage spends its time on: computing, waiting for values, or waiting for room behind it."""

from __future__ import annotations

import enum
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

_LAST_SECONDS = 5.0
_PACKED = struct.Struct("<ddd")


class State(enum.IntEnum):
    """BUSY computes and copies, STARVED waits for values, BLOCKED for the credit of a slot of the next stage's."""

    BUSY, STARVED, BLOCKED = range(3)


class Totals(NamedTuple):
    """Seconds in each state since a stage began."""

    busy: float = 0.0
    starved: float = 0.0
    blocked: float = 0.0

    def pack(self) -> bytes:
        """As a stage sends it."""
        return _PACKED.pack(*self)

    @classmethod
    def unpack(cls, data: bytes | bytearray) -> Totals:
        """What `pack` made."""
        return cls(*_PACKED.unpack(data))


class StateClock:
    """Counts the seconds in each state; one thread enters states, any reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds = [0.0] * len(State)
        self._state, self._since = State.STARVED, clock()

    def enter(self, state: State) -> None:
        """Be in that state from now on."""
        with self._lock:
            now = self._clock()
            self._seconds[self._state] += now - self._since
            self._state, self._since = state, now

    def read(self) -> Totals:
        """Until now."""
        with self._lock:
            seconds = list(self._seconds)
            seconds[self._state] += self._clock() - self._since
        return Totals(*seconds)


class Recent:
    """The shares of one stage over the last seconds, from the totals that it sends now and then. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, Totals]] = deque()

    def add(self, totals: Totals) -> None:
        """What a stage has just sent."""
        self._seen.append((self._clock(), totals))
        while self._seen[0][0] < self._clock() - _LAST_SECONDS:
            self._seen.popleft()

    @property
    def latest(self) -> Totals | None:
        """What the stage sent last; None where it has sent nothing yet."""
        return self._seen[-1][1] if self._seen else None

    def clear(self) -> None:
        """The stage is another process from now on."""
        self._seen.clear()

    def shares(self) -> dict[str, float] | None:
        """{"busy", "starved", "blocked"}, which come to 1; None where it has not sent enough yet."""
        if len(self._seen) < 2:
            return None
        (_, first), (_, last) = self._seen[0], self._seen[-1]
        spent = [after - before for before, after in zip(first, last, strict=True)]
        whole = sum(spent)
        return {name: round(one / whole, 4) for name, one in zip(Totals._fields, spent, strict=True)} if whole > 0 else None
