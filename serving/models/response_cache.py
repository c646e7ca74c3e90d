"""Outputs kept for inputs that come again, within a given number of bytes: the least recently used go first."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Sequence

import numpy as np
from cachetools import LRUCache

__all__ = ["ModelCache", "ResponseCache", "fingerprint"]

# What an entry takes beside its arrays' data: key, array objects, links.
_OVERHEAD = 1024
Rows = list[np.ndarray]


class ResponseCache:
    """At most `max_bytes` of outputs, overhead included, shared by all models. Any thread may call any method."""

    def __init__(self, max_bytes: int) -> None:
        self._lock = threading.Lock()
        self._serial = itertools.count()
        self._entries: LRUCache[tuple[int, bytes], Rows] = LRUCache(max_bytes, getsizeof=_size)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        """Bytes taken now."""
        return int(self._entries.currsize)

    def of_model(self) -> ModelCache:
        """A part of its own for one loaded model version: another, or the same loaded again, never sees its entries."""
        return ModelCache(self, next(self._serial))

    def get(self, owner: int, key: bytes) -> Rows | None:
        """What was kept, and now counts as used last."""
        with self._lock:
            return self._entries.get((owner, key))

    def put(self, owner: int, key: bytes, outputs: Rows) -> None:
        """Keep copies, for what a batch gives out are views of all its rows. What is larger than the cache is not kept."""
        kept = [output.copy() for output in outputs]
        for output in kept:
            output.setflags(write=False)  # many answers will be made from it
        with self._lock:
            if _size(kept) <= self._entries.maxsize:
                self._entries[owner, key] = kept

    def forget(self, owner: int) -> None:
        """Drop all entries of one part."""
        with self._lock:
            keys = [key for key in self._entries if key[0] == owner]
        for key in keys:  # one at a time, so that requests are not held up
            with self._lock:
                self._entries.pop(key, None)


class ModelCache:
    """The part of a `ResponseCache` that belongs to one loaded model version."""

    def __init__(self, cache: ResponseCache, owner: int) -> None:
        self._cache = cache
        self._owner = owner

    def get(self, key: bytes) -> Rows | None:
        """The outputs kept under a `fingerprint`, read-only."""
        return self._cache.get(self._owner, key)

    def put(self, key: bytes, outputs: Rows) -> None:
        """Keep outputs under a `fingerprint`."""
        self._cache.put(self._owner, key, outputs)

    def clear(self) -> None:
        """Drop everything of this version."""
        self._cache.forget(self._owner)


def fingerprint(inputs: Sequence[np.ndarray] | Sequence[bytes]) -> bytes:
    """A BLAKE2b digest of 32 bytes of a model's inputs in its own order, or of encoded images; nobody can make two agree."""
    total = hashlib.blake2b(digest_size=32)
    for value in inputs:
        if isinstance(value, bytes):
            total.update(b"image %d\n" % len(value))
            total.update(value)
        elif value.dtype == object:
            total.update(f"bytes {value.shape}\n".encode())
            for element in value.ravel():
                total.update(b"%d\n" % len(element))
                total.update(element)
        else:
            total.update(f"{value.dtype.str} {value.shape}\n".encode())
            total.update(np.ascontiguousarray(value).data)
    return total.digest()


def _size(outputs: Rows) -> int:
    return _OVERHEAD + sum(output.nbytes for output in outputs)
