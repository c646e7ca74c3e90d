"""For those who wait until what serves has changed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

Listener = Callable[[], object]


class Notifications:
    """Listeners that are called, one after the other in the thread that `notify`s, and should be quick. Any thread may call."""

    def __init__(self, *listeners: Listener) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Listener] = {object(): listener for listener in listeners}

    def notify(self) -> None:
        """Something has changed."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()

    @contextlib.contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Have it called until the block ends."""
        key = object()
        with self._lock:
            self._listeners[key] = listener
        try:
            yield
        finally:
            with self._lock:
                del self._listeners[key]
