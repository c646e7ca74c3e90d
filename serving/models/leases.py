"""Who still uses a model version, so that it is closed when, and only when, its last request has been answered."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar


class Leases:
    """Counts the requests that use one model version. Any thread may call any method."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._count = 0
        self._retired = False

    def acquire(self) -> bool:
        """Begin one use, to be ended by `release`; False, and nothing to end, once the version is retired."""
        with self._changed:
            if self._retired:
                return False
            self._count += 1
            return True

    def release(self) -> None:
        """End one use."""
        with self._changed:
            self._count -= 1
            if self._retired and not self._count:
                self._changed.notify_all()

    def retire(self, seconds: float) -> bool:
        """Let nobody in any more and wait until the last one has left, or so long; whether all have left."""
        end = time.monotonic() + seconds
        with self._changed:
            self._retired = True
            while self._count and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return not self._count


class _Leasable(Protocol):
    @property
    def leases(self) -> Leases: ...


M = TypeVar("M", bound=_Leasable)


@contextlib.contextmanager
def leased(look_up: Callable[[], M]) -> Iterator[M]:
    """What `look_up` finds, kept from being closed until the block ends, whatever is loaded or unloaded meanwhile. Whoever
    retires a model must have put another in its place before, or nothing, so that looking it up again ends."""
    model = look_up()
    while not model.leases.acquire():  # it was exchanged between the two
        model = look_up()
    try:
        yield model
    finally:
        model.leases.release()
