"""One capture or measurement at a time in the process, and none while modules answer, which they do side by side."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType

import torch


class CaptureLock:
    """As an RLock, `with lock:` is one thread's alone; `with lock.beside():` is any number's at once while nobody has it alone.

    Who waits to have it alone comes before those who would be beside later. Both may be entered again by the same thread; one
    that asks to have it alone while it is beside stands still until it has it, and so is waited for by nobody.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner: int | None = None
        self._depth = 0  # of the owner
        self._beside: dict[int, int] = {}  # how deep by thread
        self._set_aside = 0  # how deep the owner is beside, too
        self._waiting = 0  # threads that want it alone

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if self._owner != me:
                mine = self._beside.pop(me, 0)
                self._waiting += 1
                self._changed.notify_all()
                try:
                    self._changed.wait_for(lambda: self._owner is None and not self._beside)
                    self._owner, self._set_aside = me, mine
                finally:  # also where the user interrupts it
                    self._waiting -= 1
                    if self._owner != me and mine:
                        self._beside[me] = mine
            self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._changed:
            self._depth -= 1
            if self._depth == 0:
                if self._set_aside:
                    self._beside[threading.get_ident()] = self._set_aside
                self._owner = None
                self._changed.notify_all()

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Without a capture or a measurement by another thread within the block."""
        me = threading.get_ident()
        with self._changed:
            if self._owner == me:
                self._set_aside += 1
            else:
                if me not in self._beside:
                    self._changed.wait_for(lambda: self._owner is None and not self._waiting)
                self._beside[me] = self._beside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                if self._owner == me:
                    self._set_aside -= 1
                elif self._beside[me] > 1:
                    self._beside[me] -= 1
                else:
                    del self._beside[me]
                    self._changed.notify_all()


LOCK = CaptureLock()
"""Held alone while modules are not themselves, because they are captured (evaluation mode, tensors without memory in place of
parameters), and while candidates are measured, which beside another would measure both; beside, by modules that answer."""


@contextlib.contextmanager
def locked(inputs: Sequence[object]) -> Iterator[None]:
    """Alone in the process, and without an autocast of the caller's: precisions are the plan's to choose."""
    devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
    with LOCK, contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
