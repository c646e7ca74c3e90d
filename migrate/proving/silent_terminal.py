"""A terminal at which nobody sits: scripts that ask for its size get one, scripts that wait for input get the end of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

LINES, COLUMNS = 24, 80


@contextlib.contextmanager
def silent_terminal() -> Iterator[int]:
    """A file descriptor for a child's standard input, for as long as the block lasts.

    It is a pseudo terminal of 24 lines and 80 columns, because many training scripts ask `stty size` for the width of their
    progress bar and end where there is no terminal. Every read from it returns at once, with nothing: that is what termios(3)
    says of a terminal without canonical mode, with VMIN and VTIME 0, where nothing was typed. Where the platform has no pseudo
    terminals, it is the null device.
    """
    try:
        import termios

        master, slave = os.openpty()
    except (ImportError, OSError):
        yield subprocess.DEVNULL
        return
    try:
        termios.tcsetwinsize(slave, (LINES, COLUMNS))
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~(termios.ICANON | termios.ECHO)
        attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 0, 0
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        yield slave
    finally:
        os.close(slave)
        os.close(master)
