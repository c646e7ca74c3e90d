"""Virtual time: what is due next happens next, and things that are due at once happen in the order they were planned."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """`now` in seconds, and everything that will happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = 0

    def at(self, when: float, happen: Callable[[], object]) -> None:
        """Call `happen` at that moment."""
        self._serial += 1
        heapq.heappush(self._due, (when, self._serial, happen))

    def after(self, seconds: float, happen: Callable[[], object]) -> None:
        """Call `happen` so much later."""
        self.at(self.now + seconds, happen)

    def run(self) -> None:
        """Go on until nothing is due any more."""
        while self._due:
            self.now, _, happen = heapq.heappop(self._due)
            happen()
