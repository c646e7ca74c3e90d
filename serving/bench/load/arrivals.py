"""When the load generator's requests are due."""

from __future__ import annotations

import random
from typing import Protocol

__all__ = ["Arrivals", "ClosedLoop", "EachOnce", "Poisson"]


class Arrivals(Protocol):
    """When requests are due. Each connection asks when it becomes free, so this object is shared by all of them."""

    def next_start(self, now: float) -> float | None:
        """The moment (monotonic seconds) the next request is due, past or future; None when there are no more."""


class EachOnce:
    """As many requests as there are images, each due as soon as a connection is free."""

    def __init__(self, count: int) -> None:
        self._left = count

    def next_start(self, now: float) -> float | None:
        self._left -= 1
        return now if self._left >= 0 else None


class ClosedLoop:
    """A request is due the moment the answer before it is complete, until the time is over.

    So a service that stalls is asked less meanwhile, and the requests that would have come have no latencies: what a closed
    loop measures is throughput at a given number of users, and the latencies of those users only.
    """

    def __init__(self, until: float) -> None:
        self._until = until

    def next_start(self, now: float) -> float | None:
        return now if now < self._until else None


class Poisson:
    """Requests are due at random moments that do not depend on the server; a late one is still timed from its moment."""

    def __init__(self, *, rate: float, begin: float, until: float, seed: int) -> None:
        self._rate, self._next, self._until = rate, begin, until
        self._random = random.Random(seed)  # noqa: S311 - traffic, not a secret

    def next_start(self, now: float) -> float | None:
        self._next += self._random.expovariate(self._rate)
        return self._next if self._next < self._until else None
