"""Requests' rows laid out as one batch, and a batch's outputs handed back row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

Arrays = list[np.ndarray]


class _Item(Protocol):
    rows: int
    inputs: Arrays


class Collator:
    """Batch buffers of one instance, allocated once: fresh memory of this size costs a page fault per 4 KiB."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._buffers: Arrays = []

    def collate(self, items: Sequence[_Item], bucket: int) -> Arrays:
        """The inputs of all items one after another, padded to `bucket` by repeating the last row. What is returned is only
        good until the next call. An item that fills the bucket by itself is passed on without a copy."""
        if len(items) == 1 and items[0].rows == bucket:
            return [np.ascontiguousarray(array) for array in items[0].inputs]
        firsts = items[0].inputs
        if [(buffer.shape[1:], buffer.dtype) for buffer in self._buffers] != [
            (first.shape[1:], first.dtype) for first in firsts
        ]:
            self._buffers = [np.empty((self._largest, *first.shape[1:]), dtype=first.dtype) for first in firsts]
        for position, buffer in enumerate(self._buffers):
            at = 0
            for item in items:
                buffer[at : at + item.rows] = item.inputs[position]
                at += item.rows
            buffer[at:bucket] = buffer[at - 1]
        return [buffer[:bucket] for buffer in self._buffers]

    def owns(self, output: np.ndarray) -> bool:
        """Whether an output lies in these buffers, as that of a model which hands its input through may."""
        return any(np.may_share_memory(output, buffer) for buffer in self._buffers)


def split(outputs: Sequence[np.ndarray], items: Sequence[_Item]) -> list[Arrays]:
    """Each item's own rows of every output, as views."""
    answers, at = [], 0
    for item in items:
        answers.append([output[at : at + item.rows] for output in outputs])
        at += item.rows
    return answers
