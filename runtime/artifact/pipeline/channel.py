"""One hop of a pipeline: values from a process to the next by shared memory, as many at a time as there are slots.

Each slot has a memory that the sender makes, and makes again where values need more. It writes a slot only while it holds the
slot's credit: sending uses the credit up, and the receiver gives it back once it needs the values no more. Messages and credits
go over a socket, so that whoever waits is woken by what it waits for, and by the end of the other process.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....errors import BackendError
from ...base.anonymous_memory import create_memory, map_memory
from ..split.link import Kind, Link, Message

# While a stage computes what lies in one slot, the stage before it may write the other.
SLOTS = 2
_ALIGNMENT = 64  # a cache line, and what kernels with wide vectors like best


class LinkLostError(Exception):
    """The other end of a hop is gone, or somebody has ended the link."""


class Arrived(NamedTuple):
    """Values that lie in a slot, until that is given back."""

    serial: int
    slot: int
    values: list[np.ndarray]


class Outlet:
    """The sending end. Used by one thread at a time; the link may be ended by any."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._credits = list(range(SLOTS))
        self._memory: dict[int, mmap.mmap] = {}

    def wait(self) -> None:
        """Until a slot is free. Raises LinkLostError."""
        while not self._credits:
            self._credits.append(_next(self.link, Kind.CREDIT).value)

    def send(self, serial: int, values: Sequence[np.ndarray]) -> None:
        """Copy values of any shapes into a free slot, for which it waits, and say so. Raises LinkLostError, and BackendError
        for what cannot lie there; the slot stays free then."""
        if odd := [value.dtype for value in values if value.dtype.hasobject]:
            raise BackendError(f"a value of {odd[0]} cannot go from one process to another")
        self.wait()
        slot = self._credits[-1]
        ends = [0]
        for value in values:
            ends.append(ends[-1] + -(-value.nbytes // _ALIGNMENT) * _ALIGNMENT)
        descriptors = self._grow(slot, max(ends[-1], _ALIGNMENT))
        try:
            for value, offset in zip(values, ends, strict=False):
                _view(self._memory[slot], value.dtype, value.shape, offset)[...] = value
            layout = [[value.dtype.str, value.shape] for value in values]
            self._credits.pop()
            self.link.send(Kind.VALUES, serial, slot, json.dumps(layout).encode(), descriptors=descriptors)
        except OSError:
            raise LinkLostError from None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _grow(self, slot: int, size: int) -> list[int]:
        """The descriptor of a new memory where the slot's is too small."""
        if len(self._memory.get(slot, b"")) >= size:
            return []
        try:
            descriptor = create_memory(size)
            self._memory[slot] = map_memory(os.dup(descriptor))
        except OSError as error:
            raise BackendError(f"there is no shared memory of {size:,} bytes: {error}") from error
        return [descriptor]


class Inlet:
    """The receiving end. Used by one thread at a time; the link may be ended by any."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._memory: dict[int, mmap.mmap] = {}

    def receive(self) -> Arrived:
        """The next values, as views of their slot. Raises LinkLostError."""
        message = _next(self.link, Kind.VALUES)
        for descriptor in message.descriptors:
            self._memory[message.value] = map_memory(descriptor)
        values, offset = [], 0
        for name, shape in json.loads(message.data):
            dtype = np.dtype(name)
            values.append(_view(self._memory[message.value], dtype, shape, offset))
            offset += -(-dtype.itemsize * math.prod(shape) // _ALIGNMENT) * _ALIGNMENT
        return Arrived(message.serial, message.value, values)

    def give_back(self, slot: int) -> None:
        """Let the sender write into a slot again, in which nobody may look any more. Raises LinkLostError."""
        try:
            self.link.send(Kind.CREDIT, 0, slot)
        except OSError:
            raise LinkLostError from None


def _view(memory: mmap.mmap, dtype: np.dtype, shape: Sequence[int], offset: int) -> np.ndarray:
    # of nothing there is no place, and at the end of the memory none for it
    return np.ndarray(shape, dtype, memory, offset) if math.prod(shape) else np.empty(shape, dtype)


def _next(link: Link, kind: Kind) -> Message:
    message = link.receive()
    if message is None:
        raise LinkLostError
    assert message.kind is kind, f"nothing else comes from this side, got {message.kind}"
    return message
