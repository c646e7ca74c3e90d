"""Decoded pieces to batches of exactly as many rows as the session likes best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from spdl.pipeline.defs import Aggregator

from .failures import named
from .plan import Shard
from .sources import Image
from .stages import MODEL

# Images without rows are held back no longer than until so many batches' worth of them wait.
_MOST_WAITING = 8


@dataclass(slots=True)
class Decoded:
    """Images of one shard with the rows of those that have no error, in the same order; `last` ends the shard."""

    shard: Shard
    images: list[Image]
    rows: np.ndarray
    last: bool

    def split(self, rows: int) -> tuple[Decoded, Decoded]:
        """The images up to the one with that many rows before and including it, and those after it."""
        seen = 0
        for number, image in enumerate(self.images):
            if seen == rows:
                first = Decoded(self.shard, self.images[:number], self.rows[:rows], last=False)
                return first, Decoded(self.shard, self.images[number:], self.rows[rows:], self.last)
            seen += image.error is None
        return self, Decoded(self.shard, [], self.rows[rows:], last=False)


@dataclass(slots=True)
class Batch:
    """Parts of shards in order, whose rows together are one input of the model.

    After `collate` that lies in `rows`; after the model `scores` has for each row its scores or what went wrong.
    """

    parts: list[Decoded]
    rows: np.ndarray | None = None
    scores: Sequence[np.ndarray | str] = ()

    @property
    def images(self) -> list[Image]:
        """All images, in order."""
        return [image for part in self.parts for image in part.images]


class Batches(Aggregator):  # type: ignore[misc]
    """Collects pieces, of at most `size` images each, until there are `size` rows."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._parts: list[Decoded] = []
        self._rows = 0
        self._images = 0

    def accumulate(self, item: Any) -> Batch | None:
        """Take a piece; a batch when it is full. See spdl's `Aggregator`."""
        with named(MODEL, item.images):
            return self._take(item)

    def _take(self, item: Decoded) -> Batch | None:
        self._parts.append(item)
        self._rows += len(item.rows)
        self._images += len(item.images) + 1
        if self._rows >= self._size:
            return self._cut()
        return self.flush() if self._images > _MOST_WAITING * self._size + _MOST_WAITING else None

    def flush(self) -> Batch | None:
        """What is left."""
        if not self._parts:
            return None
        parts, self._parts, self._rows, self._images = self._parts, [], 0, 0
        return Batch(parts)

    def _cut(self) -> Batch:
        more = self._rows - self._size
        last = self._parts.pop()
        first, rest = last.split(len(last.rows) - more)
        batch = Batch([*self._parts, first])
        kept = bool(rest.images) or rest.last
        self._parts, self._rows, self._images = ([rest], more, len(rest.images)) if kept else ([], 0, 0)
        return batch


def collate(batch: Batch) -> Batch:
    """Bring the rows together, [rows, ...]; the parts' own are let go."""
    batch.rows = np.concatenate([part.rows for part in batch.parts])
    empty = batch.rows[:0]
    for part in batch.parts:
        part.rows = empty
    return batch
