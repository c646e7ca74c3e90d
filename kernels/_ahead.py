"""Kernels compiled before they are started, on all processors at once: alone each takes a second, and a network has hundreds.

Triton compiles in threads, which mostly leave Python alone: of half a second for a convolution two thirds are LLVM's and
ptxas', and no thread was seen to wait 10 ms for another (8 convolutions for sm_90, Triton 3.6).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_AHEAD = contextvars.ContextVar("headrace_compiling_ahead", default=False)


def is_ahead() -> bool:
    """Whether who starts a kernel here wants it to be compiled alone."""
    return _AHEAD.get()


class _Until(ThreadPoolExecutor):
    """Threads that begin nothing more when the time is over. What waits is given up one by one: a future that the pool itself
    cancels when it is shut down is never told so, and who waits for it, as Triton does, waits for ever."""

    def __init__(self, deadline: float) -> None:
        super().__init__(len(os.sched_getaffinity(0)), thread_name_prefix="headrace-compile")
        self._deadline = deadline
        self.asked: dict[Future[Any], Callable[[], Any]] = {}

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(self._in_time, function, *args, **kwargs)
        self.asked[future] = functools.partial(function, *args, **kwargs)
        return future

    def _in_time(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() >= self._deadline:
            raise TimeoutError
        return function(*args, **kwargs)


@dataclass
class _Later:
    """In place of the future of a kernel that was not compiled ahead, by which Triton knows it since 3.8: compiles it when it
    is started."""

    result: Callable[[], Any]


def compile_ahead(calls: Iterable[Callable[[], Any]], *, seconds: float) -> None:
    """Compile the kernels that these calls start, and start none. What they compute is not written.

    What fails, or is not begun after so many seconds, is left to who starts it; so is all of it where Triton is too old for it.
    """
    deadline = time.monotonic() + seconds
    with _Until(deadline) as pool:
        try:
            from triton import AsyncCompileMode

            mode = AsyncCompileMode(pool, ignore_errors=True)
        except (ImportError, TypeError):
            return
        before = _AHEAD.set(True)
        try:
            with mode:  # at its end it waits for what was begun
                for call in calls:
                    if time.monotonic() >= deadline:
                        break
                    with contextlib.suppress(Exception):  # whoever starts it meets the reason again
                        call()
        finally:
            _AHEAD.reset(before)
        for kernel in mode.future_kernels.values():
            if kernel.kernel is None:
                kernel.future = _Later(pool.asked[kernel.future])
