"""Triton's own compiler on this machine's processors, told by a driver's place holder that there is an H100."""

import pytest

from headrace.kernels import _launch

needs_triton = pytest.mark.skipif(_launch.triton is None, reason="needs Triton: pip install triton")

COMMON = """
import time, torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from headrace.kernels import _ahead, _launch, add_relu

class Driver(DriverBase):
    is_active = classmethod(lambda cls: True)
    map_python_to_cpp_type = get_benchmarker = get_active_torch_device = get_empty_cache_for_benchmark = clear_cache = None
    def __init__(self): pass
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

Driver.__abstractmethods__ = frozenset()
triton.runtime.driver.set_active(Driver())

def started(block, count=1000):
    def call():
        a, b, out = (torch.zeros(count, dtype=torch.bfloat16) for _ in range(3))
        _launch.launch(add_relu._sums, 1, torch.device("cpu"), a, b, out, count, block=block)
    return call

def compiled():
    return sum(type(kernel).__name__ == "CompiledKernel" for kernel in add_relu._sums.device_caches[0][0].values())
"""


@pytest.fixture
def run(warm_python, tmp_path):
    def run(code):
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
        done = warm_python(["-c", COMMON + code], env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.split()

    return run


@needs_triton
@pytest.mark.skipif(_launch.INTERPRETED, reason="the interpreter compiles nothing")
def test_kernels_are_compiled_and_not_started_and_what_fails_is_left(run):
    """Without a device a start fails, as the last one does here."""
    code = """
def fails(): raise RuntimeError("no memory")
_ahead.compile_ahead([started(256), fails, started(512), started(512), started(77)], seconds=60)
print(compiled(), _ahead.is_ahead())
try:
    started(256)()
except Exception as error:
    print("started", compiled())
"""
    assert run(code) == ["2", "False", "started", "2"]


@needs_triton
@pytest.mark.skipif(_launch.INTERPRETED, reason="the interpreter compiles nothing")
def test_without_time_nothing_is_compiled(run):
    assert run("_ahead.compile_ahead([started(256)], seconds=-1)\nprint(compiled())") == ["0"]


@needs_triton
@pytest.mark.skipif(_launch.INTERPRETED, reason="the interpreter compiles nothing")
def test_when_the_time_is_over_what_waits_is_left(run):
    """One thread, whose first compilation lasts until all others wait, and by the clock beyond the time."""
    code = """
import os, threading, triton.compiler
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
begun, real, now, waiting = [], triton.compiler.compile, [0.0], threading.Event()
_ahead.time = type("Clock", (), {"monotonic": staticmethod(lambda: now[0])})
def slow(*given, **named):
    begun.append(1)
    assert waiting.wait(60)
    now[0] = 2.0
    return real(*given, **named)
triton.compiler.compile = slow
_ahead.compile_ahead([*(started(block) for block in (64, 128, 256, 512, 1024)), waiting.set], seconds=1)
print(len(begun), compiled())
triton.compiler.compile = real
try:
    started(512)()
except Exception as error:
    print("started", compiled())
"""
    assert run(code) == ["1", "1", "started", "2"]
