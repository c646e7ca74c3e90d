"""Memory that nobody uses any more, given back to the system. Torch-free."""

from __future__ import annotations

import ctypes
import functools
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
