"""What was freed goes back to the system."""

import ctypes
import platform
import subprocess
import sys

import pytest

from headrace.runtime.base.memory import give_back_memory

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


def test_elsewhere_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    give_back_memory.__globals__["_trim"].cache_clear()
    give_back_memory()
    give_back_memory.__globals__["_trim"].cache_clear()
