"""Kernels compiled before they are started, on all processors at once: alone each takes a second, and a network has hundreds.

Triton compiles in threads, which mostly leave Python alone: of half a second for a convolution two thirds are LLVM's and
ptxas', and no thread was seen to wait 10 ms for another (8 convolutions for sm_90, Triton 3.6).
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

_AHEAD = contextvars.ContextVar("headrace_compiling_ahead", default=False)


def is_ahead() -> bool:
    """Whether who starts a kernel here wants it to be compiled alone."""
    return _AHEAD.get()


def compile_ahead(calls: Iterable[Callable[[], Any]], *, seconds: float) -> None:
    """Compile the kernels that these calls start, and start none. What they compute is not written.

    What fails, or is not done after about so many seconds, is left to who starts it; so is all of it where Triton is too
    old for it.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="headrace-compile")
    try:
        from triton import AsyncCompileMode

        mode = AsyncCompileMode(pool, ignore_errors=True)
    except (ImportError, TypeError):
        return
    deadline = time.monotonic() + seconds
    before = _AHEAD.set(True)
    try:
        with mode:
            for call in calls:
                if time.monotonic() >= deadline:
                    break
                with contextlib.suppress(Exception):  # whoever starts it meets the reason again
                    call()
            wait(mode.raw_futures, timeout=max(0.0, deadline - time.monotonic()))
            pool.shutdown(wait=False, cancel_futures=True)
    finally:
        _AHEAD.reset(before)
        pool.shutdown()
