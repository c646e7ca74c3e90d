"""What a batcher has done, and whether there is more to do than is done. Not thread-safe: a batcher's lock is held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# So many batches more that found requests waiting than that had to wait for some: there is more to do than is done.
_PRESSED = 64


@dataclass(frozen=True)
class Work:
    """What a batcher has done so far: rows, batches, and how many of those found requests waiting when one ended."""

    rows: int = 0
    batches: int = 0
    pressed: int = 0

    def since(self, earlier: Work) -> Work:
        return Work(self.rows - earlier.rows, self.batches - earlier.batches, self.pressed - earlier.pressed)


class Workload:
    """`done` is what was done so far."""

    def __init__(self) -> None:
        self.done = Work()
        self._pressure = 0
        self._on_pressure: Callable[[], None] | None = None

    def under_pressure(self, call: Callable[[], None] | None) -> None:
        """Have `call` called once when there is more to do than is done, counted from now; None takes that back."""
        self._pressure, self._on_pressure = 0, call

    def begins(self, pressed: bool) -> None:
        """Count a batch that begins; `pressed` says that its instance had not to wait for it."""
        self.done = Work(self.done.rows, self.done.batches + 1, self.done.pressed + pressed)
        self._pressure = max(0, self._pressure + (1 if pressed else -1))
        if self._pressure >= _PRESSED and self._on_pressure is not None:
            call, self._on_pressure = self._on_pressure, None
            call()

    def ended(self, rows: int) -> None:
        """Count the rows of a batch that ended."""
        self.done = Work(self.done.rows + rows, self.done.batches, self.done.pressed)
