"""Requests' rows laid out as one batch, and a batch's outputs handed back row by row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

Arrays = list[np.ndarray]

# Rows are gathered in pieces of at most a page, and of at least so many bytes that an index of them costs little beside them.
_MOST_PIECE, _MOST_PIECES = 4096, 1024


class Placed(NamedTuple):
    """Where the inputs of an item lie: in `memory`, uint8 [bytes], each from one of the `offsets` on."""

    memory: np.ndarray
    offsets: tuple[int, ...]


class _Item(Protocol):
    rows: int
    inputs: Arrays
    placed: Placed | None


Item = TypeVar("Item", bound=_Item)


class Collator:
    """Batch buffers of one instance, allocated once: fresh memory of this size costs a page fault per 4 KiB."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._buffers: Arrays = []

    def collate(self, items: list[Item], bucket: int) -> Arrays:
        """The inputs of all items one after another, padded to `bucket` by repeating the last row. What is returned is only
        good until the next call. An item that fills the bucket by itself is passed on without a copy. Items are put in the
        order in which they lie there: those of one memory together, which are copied in one call."""
        if len(items) == 1 and items[0].rows == bucket:
            return [np.ascontiguousarray(array) for array in items[0].inputs]
        firsts = items[0].inputs
        if [(buffer.shape[1:], buffer.dtype) for buffer in self._buffers] != [
            (first.shape[1:], first.dtype) for first in firsts
        ]:
            self._buffers = [np.empty((self._largest, *first.shape[1:]), dtype=first.dtype) for first in firsts]
        items.sort(key=_memory)
        at = 0
        for memory, group in itertools.groupby(items, key=_memory):
            together = list(group)
            rows = sum(item.rows for item in together)
            for position, buffer in enumerate(self._buffers):
                target = buffer[at : at + rows]
                if not (memory and _gathered(together, position, target)):
                    _copied(together, position, target)
            at += rows
        for buffer in self._buffers:
            buffer[at:bucket] = buffer[at - 1]
        return [buffer[:bucket] for buffer in self._buffers]

    def owns(self, output: np.ndarray) -> bool:
        """Whether an output lies in these buffers, as that of a model which hands its input through may."""
        return any(np.may_share_memory(output, buffer) for buffer in self._buffers)


def joined(inputs: Sequence[Arrays]) -> Arrays:
    """The rows of all requests one after another, without padding; those of a single one as they are."""
    return inputs[0] if len(inputs) == 1 else [np.concatenate(parts) for parts in zip(*inputs, strict=True)]


def split(outputs: Sequence[np.ndarray], items: Sequence[_Item]) -> list[Arrays]:
    """Each item's own rows of every output, as views."""
    answers, at = [], 0
    for item in items:
        answers.append([output[at : at + item.rows] for output in outputs])
        at += item.rows
    return answers


def _memory(item: _Item) -> int:
    """Which memory an item lies in; 0 for none that others share."""
    return 0 if item.placed is None else id(item.placed.memory)


def _copied(items: Sequence[_Item], position: int, target: np.ndarray) -> None:
    """Put the rows of one input into `target`, one item after another."""
    at = 0
    for item in items:
        target[at : at + item.rows] = item.inputs[position]
        at += item.rows


def _gathered(items: Sequence[_Item], position: int, target: np.ndarray) -> bool:
    """The same for items of one memory, in one call, which lets go of the interpreter once and not for every row: whoever lets
    go waits for milliseconds where another thread is busy. False, with nothing done, where rows come in too many pieces."""
    size = target.nbytes // len(target)
    offsets: np.ndarray = np.array([item.placed.offsets[position] for item in items if item.placed is not None])
    if len(items) < len(target):  # the rows of an item lie behind one another
        counts = [item.rows for item in items]
        within = np.concatenate([np.arange(count) for count in counts])
        offsets = np.repeat(offsets, counts) + within * size
    common = int(np.bitwise_or.reduce(offsets)) | size | _MOST_PIECE
    piece = common & -common
    pieces = size // piece
    if len(items) < 2 or not 0 < pieces <= _MOST_PIECES:
        return False
    placed = items[0].placed
    assert placed is not None, "they lie in one memory"
    memory = placed.memory[: len(placed.memory) // piece * piece].reshape(-1, piece)
    index = (offsets[:, None] // piece + np.arange(pieces)).ravel()
    # Every index is inside; "raise" would go by way of another buffer.
    np.take(memory, index, axis=0, out=target.reshape(-1).view(np.uint8).reshape(-1, piece), mode="clip")
    return True
