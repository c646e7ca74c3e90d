"""Signals of a program whose main thread waits inside calls that know nothing of them."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["Signals", "StoppedError"]


class StoppedError(BaseException):
    """SIGTERM or SIGINT came. Not an Exception, as what waits may catch those and go on waiting."""


class Signals:
    """For a `with` block of the main thread: the first signal raises StoppedError there, unless `hold` was called before it;
    the second ends the process."""

    def __init__(self) -> None:
        self._held = False
        self._received = False

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hold(self) -> None:
        """From now on a first signal changes nothing: the program is about to end."""
        self._held = True

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._received:
            os._exit(128 + number)
        self._received = True
        if not self._held:
            raise StoppedError
