"""Memory that processes share and that has no name, so that nothing is left behind however they end. On Linux."""

from __future__ import annotations

import fcntl
import mmap
import os


def create_memory(size: int) -> int:
    """A file descriptor of that many bytes of anonymous shared memory, which nobody can shrink under another's feet. Pages cost
    nothing before they are first written. Raises OSError."""
    descriptor = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_memory(data: bytes) -> int:
    """A file descriptor of such memory that holds these bytes. Raises OSError."""
    descriptor = create_memory(len(data))
    try:
        os.pwrite(descriptor, data, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_memory(descriptor: int) -> mmap.mmap:
    """The memory behind a descriptor, which is closed; the memory lives as long as something refers to the mapping."""
    try:
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)
