"""What was freed goes back to the system."""

import ctypes
import platform
import subprocess
import sys

import pytest

from headrace.runtime.base.memory import free_megabytes, give_back_memory, keep_freed_memory

CODE = """
import ctypes
from headrace.runtime.base.memory import give_back_memory
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def resident():
    return int(open('/proc/self/statm').read().split()[1]) * 4 // 1024
held = [c.malloc(60_000) for _ in range(1000)]
for one in held:
    ctypes.memset(one, 1, 60_000)
c.malloc(60_000)  # the last one keeps the others from being cut off
for one in held:
    c.free(one)
before = resident()
give_back_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_freed_memory_leaves_the_process():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40  # MiB of 57


FAULTS = """
import resource, threading
import numpy as np
from headrace.runtime.base.memory import keep_freed_memory
keep_freed_memory()
def work():
    for number in range(120):
        if number == 20:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        kept = [np.ones(size, np.uint8) for size in (562_500, 330_000, 330_000, 227_000, 150_000)]
        del kept
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_what_an_image_took_is_kept_for_the_next():
    """Else each would fault on the pages of its arrays anew: 100 times some 250 pages, at worst."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


def test_elsewhere_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
    give_back_memory.__globals__["_trim"].cache_clear()
    give_back_memory()
    give_back_memory.__globals__["_trim"].cache_clear()


@pytest.mark.parametrize(("limit", "most"), [("max", None), ("1048576000", 900.0), ("garbage", None), (None, None)])
def test_a_containers_limit_counts(tmp_path, limit, most):
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{100 << 20}\n")
    free = free_megabytes(tmp_path)
    assert free > 0
    if most is not None:
        assert free == pytest.approx(min(most, free))
        assert free <= most
