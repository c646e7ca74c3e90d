import mmap
import os

import pytest

from headrace.runtime.base.anonymous_memory import create_memory, map_memory, write_memory


def test_the_memory_cannot_be_shrunk_under_a_reader_and_has_no_name():
    before = set(os.listdir("/dev/shm"))
    descriptor = create_memory(1 << 16)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 1 << 20)
    assert set(os.listdir("/dev/shm")) == before
    assert isinstance(map_memory(descriptor), mmap.mmap)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)


def test_bytes_are_read_from_the_start_by_whoever_gets_the_descriptor():
    with map_memory(write_memory(b"some bytes")) as memory:
        assert memory[:] == b"some bytes"
