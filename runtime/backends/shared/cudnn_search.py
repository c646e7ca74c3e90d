"""cuDNN's search: convolutions that a thread first computes while it is on are measured in every form that cuDNN has for them.

torch keeps what was found, or guessed without a search, for shapes, layouts and dtype as long as the thread lives. So a search
must be on from the first run; later it changes nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import torch


class _Switch:
    """torch's own, which belongs to the process: on while anybody searches, then what it was before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searching = 0
        self._before = (False, True)

    def on(self) -> None:
        with self._lock:
            if not self._searching:
                self._before = (torch.backends.cudnn.benchmark, _empties())
                # After each search torch would empty its cache of memory, which waits for the device and spoils recordings.
                _set(search=True, empty=False)
            self._searching += 1

    def off(self) -> None:
        with self._lock:
            self._searching -= 1
            if not self._searching:
                _set(*self._before)


_SWITCH = _Switch()


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """Search within the block, in every thread."""
    _SWITCH.on()
    try:
        yield
    finally:
        _SWITCH.off()


class Searched:
    """Calls like `function`, with the search on when it first meets inputs of so many rows as is a power of two.

    A search takes seconds for a network: those sizes are what plans measure and servers warm up with, and what is between them
    is met while a server answers.
    """

    def __init__(self, function: Callable[..., Sequence[torch.Tensor]]) -> None:
        self._function = function
        self._met: set[tuple[torch.Size, ...]] = set()

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        rows, shapes = inputs[0].shape[0], tuple(value.shape for value in inputs)
        if rows & (rows - 1) or shapes in self._met:
            return self._function(*inputs)
        with searching():
            results = self._function(*inputs)
        self._met.add(shapes)
        return results


def _set(search: bool, empty: bool) -> None:
    torch.backends.cudnn.benchmark = search
    change = getattr(torch._C, "_cudnn_set_conv_benchmark_empty_cache", None)
    if change is not None:
        change(empty)


def _empties() -> bool:
    """Whether torch empties its cache of memory after a search; builds without CUDA do not know."""
    found = getattr(torch._C, "_cuda_get_conv_benchmark_empty_cache", None)
    return True if found is None else bool(found())
