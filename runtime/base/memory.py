"""How much memory there is, and what nobody uses any more given back to the system. Torch-free."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from pathlib import Path
from typing import Any


def give_back_memory() -> None:
    """Give back what was freed: glibc keeps most of it for itself. Does nothing where the C library is another.

    Opening a graph of 47 MB takes 200 MB for a moment, of which 100 would stay with the process.
    """
    if (trim := _trim()) is not None:
        trim(0)


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
