"""The system shared memory extension: regions that clients register, tensors read from them and written into them.

Nothing is ever mapped. A client may shrink its object at any moment, and touching a mapped page beyond the new end kills the
process with SIGBUS; a check beforehand cannot help, as the object may shrink between the check and the use. `pread` and
`pwrite` have no such moment: a read beyond the end is short, which is an error of that one request.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import stat
import threading
import weakref
from typing import Any

import numpy as np

from ...errors import InputError, NotFoundError, TooLargeError
from ..protocol.codec import binary_to_tensor, tensor_to_binary
from ..protocol.messages import DATATYPES, InferenceRequest, SharedInput, SharedPlace, Tensor

# Where Linux keeps POSIX shared memory objects; glibc's shm_open opens the same files.
_FOLDER = "/dev/shm"  # noqa: S108
_KEY = re.compile(r"/?([A-Za-z0-9_][A-Za-z0-9._-]{0,253})", re.ASCII)
# Semaphores lie in the same folder, and so does what this server and its libraries make for themselves.
_RESERVED = ("sem.", "headrace", "torch_")
_MAX_REGIONS = 256
_MAX_NAME = 256


class _Region:
    """A registered part of an object. Its file stays open while anybody holds the region, so that no number is used again."""

    def __init__(self, name: str, key: str, offset: int, byte_size: int, opened: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self._reader = opened
        self._writer: int | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, opened)

    @property
    def unlinked(self) -> bool:
        """Whether nobody but those who hold the object can come to it any more."""
        return not os.fstat(self._reader).st_nlink

    def read(self, at: int, size: int) -> bytes:
        parts = []
        at += self.offset
        while size:
            part = os.pread(self._reader, size, at)
            if not part:
                raise InputError(f"shared memory region '{self.name}' became smaller since it was registered")
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, at: int, data: bytes) -> None:
        writer = self._open_to_write()
        at += self.offset
        # A write beyond the end would make the client's object longer. If it shrinks just now that happens all the same,
        # within the size that the client registered.
        if os.fstat(writer).st_size < at + len(data):
            raise InputError(f"shared memory region '{self.name}' became smaller since it was registered")
        left = memoryview(data)
        while left:
            written = os.pwrite(writer, left, at)
            at += written
            left = left[written:]

    def _open_to_write(self) -> int:
        """Opened when an output first goes there; through the open file, as the key may name something else by now."""
        with self._lock:
            if self._writer is None:
                try:
                    self._writer = os.open(f"/proc/self/fd/{self._reader}", os.O_RDWR | os.O_CLOEXEC)
                except OSError:
                    raise InputError(
                        f"shared memory region '{self.name}' may not be written by this server; give its user the right to"
                    ) from None
                weakref.finalize(self, os.close, self._writer)
            return self._writer


class SharedMemory:
    """The registered regions by name. A request may bring at most `limit` bytes; methods may be called from any thread.

    Every rejected key has the same error, whether there is no such object, it is no shared memory or it may not be read: no
    answer shows what else lies on this machine.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._regions: dict[str, _Region] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: Any, byte_size: Any, offset: Any = 0) -> None:
        """Open the object `key` and know `byte_size` of its bytes, from `offset` on, as `name`. Raises InputError."""
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise InputError(f"a shared memory region's name must have 1 to {_MAX_NAME} printable characters")
        for field, value, least in (("offset", offset, 0), ("byte_size", byte_size, 1)):
            if type(value) is not int or not least <= value < 1 << 63:
                raise InputError(
                    f"failed to register shared memory region '{name}': invalid args, '{field}' must be an integer of at least "
                    f"{least} and below 2^63"
                )
        opened = _open(name, key)
        region = _Region(name, key, offset, byte_size, opened)
        if os.fstat(opened).st_size < offset + byte_size:
            raise InputError(
                f"failed to register shared memory region '{name}': invalid args, the object is smaller than 'offset' and "
                "'byte_size' together"
            )
        with self._lock:
            if name in self._regions:
                raise InputError(f"shared memory region '{name}' already in manager; unregister it first")
            if len(self._regions) >= _MAX_REGIONS:  # clients that were killed have unregistered nothing
                self._regions = {known: one for known, one in self._regions.items() if not one.unlinked}
            if len(self._regions) >= _MAX_REGIONS:
                raise InputError(f"{_MAX_REGIONS} shared memory regions are registered already; unregister one first")
            self._regions[name] = region

    def unregister(self, name: str = "") -> None:
        """Forget one region, or all; one that is unknown is forgotten already. Requests that use it now still end well."""
        with self._lock:
            if name:
                self._regions.pop(name, None)
            else:
                self._regions.clear()

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """One region, or all. Raises NotFoundError."""
        with self._lock:
            regions = [self._find(name)] if name else list(self._regions.values())
        return [
            {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.byte_size}
            for region in regions
        ]

    def size(self, request: InferenceRequest) -> int:
        """Check every place that a request names; the bytes that its inputs have there. Raises a RequestError."""
        sizes = []
        for tensor in request.shared_inputs:
            self._within(f"input '{tensor.name}'", tensor.place)
            if tensor.datatype != "BYTES":
                needed = math.prod(tensor.shape) * np.dtype(DATATYPES[tensor.datatype]).itemsize
                if tensor.place.byte_size != needed:
                    raise InputError(
                        f"input '{tensor.name}': {tensor.datatype} of shape {tensor.shape} takes {needed} bytes, "
                        f"got 'shared_memory_byte_size' {tensor.place.byte_size}"
                    )
            sizes.append(tensor.place.byte_size)
        if sum(sizes) > self._limit:
            raise TooLargeError(
                f"the inputs have {sum(sizes):,} bytes in shared memory; this server takes at most {self._limit:,}"
            )
        places = []
        for output in request.outputs or ():
            if output.place is not None:
                self._within(f"output '{output.name}'", output.place)
                places.append(output.place)
        _check_disjoint(places)
        return sum(sizes)

    def read(self, tensor: SharedInput) -> Tensor:
        """A copy of an input. Raises InputError."""
        place = tensor.place
        data = self._within(f"input '{tensor.name}'", place).read(place.offset, place.byte_size)
        return binary_to_tensor(tensor.name, tensor.datatype, tensor.shape, data)

    def write(self, tensor: Tensor, place: SharedPlace) -> Tensor:
        """Write an output to its place; what is returned says how much of it was used. Raises InputError."""
        data = tensor_to_binary(tensor)
        if len(data) > place.byte_size:
            raise InputError(
                f"output '{tensor.name}' has {len(data)} bytes; its place in shared memory has only {place.byte_size}"
            )
        self._within(f"output '{tensor.name}'", place).write(place.offset, data)
        return Tensor(tensor.name, tensor.datatype, tensor.data, SharedPlace(place.region, place.offset, len(data)))

    def _find(self, name: str) -> _Region:
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError(f"unknown shared memory region '{name[:100]}'; register it first")
        return region

    def _within(self, what: str, place: SharedPlace) -> _Region:
        region = self._find(place.region)
        if place.offset + place.byte_size > region.byte_size:
            wrong = "offset" if place.offset >= region.byte_size else "offset + byte size"
            raise InputError(
                f"Invalid {wrong} for shared memory region '{region.name}': {what} takes {place.byte_size} bytes from "
                f"{place.offset} on, which do not lie within its {region.byte_size}"
            )
        return region


def _open(name: str, key: Any) -> int:
    """The object's file, read-only."""
    rejected = InputError(f"region '{name}': there is no shared memory object of that key that this server may read")
    match = _KEY.fullmatch(key) if isinstance(key, str) else None
    if match is None or match[1].startswith(_RESERVED):
        raise rejected
    # Not following a link keeps to the folder; not blocking keeps a named pipe from waiting for its other end.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(f"{_FOLDER}/{match[1]}", flags)
    except OSError:
        raise rejected from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise rejected
    return opened


def _check_disjoint(places: list[SharedPlace]) -> None:
    """Two outputs of one request may not overlap. They may overlap inputs, which were copied before."""
    ordered = sorted(places, key=lambda place: (place.region, place.offset))
    for first, second in itertools.pairwise(ordered):
        if first.region == second.region and second.offset < first.offset + first.byte_size:
            raise InputError(f"two outputs overlap in shared memory region '{first.region}'")
