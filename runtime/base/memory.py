"""How much memory there is, and what nobody uses any more given back to the system. Torch-free."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from pathlib import Path
from typing import Any

# mallopt's parameters in glibc's malloc.h. What is kept is at most this, and of that no block over a half.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20


def give_back_memory() -> None:
    """Give back what was freed: glibc keeps most of it for itself. Does nothing where the C library is another.

    Opening a graph of 47 MB takes 200 MB for a moment, of which 100 would stay with the process.
    """
    if (trim := _trim()) is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for what is allocated next, up to 64 MiB for each of its arenas, of which a thread has one.

    By itself it returns what an image took, so that each next one meets its pages again one by one: 160 faults for a photo of
    500x375 on 16 threads, a fifth of its processor time, and all threads of the process wait for each other meanwhile. These
    are the bounds up to which glibc goes by itself once a large block was freed. Larger ones are returned as before.
    """
    if (option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        option(_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        option(_TRIM_THRESHOLD, _KEPT_BYTES)


@functools.cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def free_megabytes(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """What a process may still take (2^20 bytes): what the machine has, and what its container's limit leaves (cgroup v2)."""
    import psutil

    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # no such limit: "max" is no number
        limit, used = ((groups / f"memory.{name}").read_text(encoding="ascii").strip() for name in ("max", "current"))
        free = min(free, int(limit) - int(used))
    return max(0, free) / (1 << 20)
