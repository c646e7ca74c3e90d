"""Outputs kept for inputs that come again, within a given number of bytes: the least recently used go first."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Sequence

import numpy as np
from cachetools import LRUCache

# What an entry takes beside its arrays' data: key, array objects, links.
_OVERHEAD = 1024
Rows = list[np.ndarray]


class ResponseCache:
    """At most `max_bytes` of outputs, overhead included, shared by all models. Any thread may call any method."""

    def __init__(self, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self.entries: LRUCache[tuple[int, bytes], Rows] = LRUCache(max_bytes, getsizeof=_size)
        self._serial = itertools.count()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def used_bytes(self) -> int:
        """Bytes taken now."""
        return int(self.entries.currsize)

    def of_model(self) -> ModelCache:
        """A part of its own for one loaded model version: another, or the same loaded again, never sees its entries."""
        return ModelCache(self, next(self._serial))


class ModelCache:
    """The part of a `ResponseCache` that belongs to one loaded model version."""

    def __init__(self, cache: ResponseCache, owner: int) -> None:
        self._cache = cache
        self._owner = owner

    def get(self, key: bytes) -> Rows | None:
        """The outputs kept under a `fingerprint`, read-only, which now count as used last."""
        with self._cache.lock:
            return self._cache.entries.get((self._owner, key))

    def put(self, key: bytes, outputs: Rows) -> None:
        """Keep copies, for what a batch gives out are views of all its rows. What is larger than the cache is not kept."""
        kept = [output.copy() for output in outputs]
        for output in kept:
            output.setflags(write=False)  # many answers will be made from it
        with self._cache.lock:
            if _size(kept) <= self._cache.entries.maxsize:
                self._cache.entries[self._owner, key] = kept

    def clear(self) -> None:
        """Drop everything of this version."""
        with self._cache.lock:
            keys = [key for key in self._cache.entries if key[0] == self._owner]
        for key in keys:  # one at a time, so that requests are not held up
            with self._cache.lock:
                self._cache.entries.pop(key, None)


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
