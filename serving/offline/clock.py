"""How busy each stage of a job is, and which one the others wait for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping

__all__ = ["Clock"]


class Clock:
    """Adds up the seconds that the workers of a stage spend working. `workers` says how many each stage has."""

    def __init__(self, workers: Mapping[str, int]) -> None:
        self.workers = dict(workers)
        self._seconds = dict.fromkeys(workers, 0.0)
        self._lock = threading.Lock()
        self._begin = time.perf_counter()

    @contextlib.contextmanager
    def work(self, stage: str) -> Iterator[None]:
        """Counts what happens inside the block as work of one worker of the stage; from any thread."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            with self._lock:
                self._seconds[stage] += took

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._begin

    def busy(self) -> dict[str, float]:
        """The share of its workers' time that each stage worked, from 0 to 1."""
        elapsed = max(self.elapsed, 1e-9)
        with self._lock:
            return {name: min(1.0, spent / elapsed / self.workers[name]) for name, spent in self._seconds.items()}

    def bottleneck(self) -> str:
        """The busiest stage: the one that more workers, or a faster one, would help."""
        busy = self.busy()
        return max(busy, key=busy.__getitem__)
