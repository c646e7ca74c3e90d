"""Memory in which the rows of coming requests are made side by side, so that a batch of them lies there already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

Arrays = list[np.ndarray]

# In units of the largest batch: one runs, one waits, one is being decoded, and one is where the ring's end is stepped over.
# Where that is too much memory there is what fits, down to one that runs and one that comes.
_BATCHES, _FEWEST_BATCHES = 4, 2
_MOST_BYTES = 256 << 20


class _Item(Protocol):
    rows: int
    place: int | None


Item = TypeVar("Item", bound=_Item)


class Staging:
    """A ring of rows of one model's inputs. Requests take places in the order of arrival, which is mostly that of service.

    `inputs` holds the shape of a row and the dtype of each input, `largest` the rows of the largest batch. Pages cost nothing
    before they are first written; with `largest` 0 no place is given. `sparing` takes as few as do: where a CPU computes, a row
    that is copied instead costs little beside what is computed of it. Not thread-safe: its owner has a lock already.
    """

    def __init__(self, inputs: Sequence[tuple[tuple[int, ...], np.dtype]], largest: int, *, sparing: bool = False) -> None:
        row_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in inputs)
        fitting = min((_FEWEST_BATCHES if sparing else _BATCHES) * largest, _MOST_BYTES // max(1, row_bytes))
        self._rows = fitting if fitting >= _FEWEST_BATCHES * largest else 0
        self._largest = largest
        self._buffers = [np.empty((self._rows, *shape), dtype) for shape, dtype in inputs]
        self._taken = bytearray(self._rows)
        self._head = 0

    def take(self, rows: int) -> int | None:
        """The first of so many free rows; None when those after the last that were taken are not free."""
        start = self._head if self._head + rows <= self._rows else 0
        if start + rows > self._rows or any(self._taken[start : start + rows]):
            return None
        self._taken[start : start + rows] = b"\1" * rows
        self._head = start + rows
        return start

    def give(self, start: int, rows: int) -> None:
        """Take rows back that `take` gave."""
        self._taken[start : start + rows] = bytes(rows)

    def turn(self) -> None:
        """Go on at the beginning if a batch might not fit before the end. When one was just taken, none is torn apart."""
        if self._head + self._largest > self._rows:
            self._head = 0

    def views(self, start: int, rows: int) -> Arrays:
        """Those rows of every input."""
        return [buffer[start : start + rows] for buffer in self._buffers]

    def batch(self, items: list[Item], bucket: int) -> Arrays | None:
        """The inputs of all items, if they fill a batch without a gap; they are put in the order of their places. Else None."""
        places = [item.place for item in items]
        if None in places or sum(item.rows for item in items) != bucket:
            return None
        items.sort(key=lambda item: item.place or 0)
        start = at = items[0].place or 0
        for item in items:
            if item.place != at:
                return None
            at += item.rows
        return self.views(start, bucket)

    def owns(self, output: np.ndarray) -> bool:
        """Whether an output lies in this memory, as that of a model which hands its input through may."""
        return any(np.may_share_memory(output, buffer) for buffer in self._buffers)
