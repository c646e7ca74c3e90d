"""The beginning of a process that is part of another one: it ends with that, and leaves signals to it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def begin_child() -> socket.socket:
    """The link to the parent. The command line has its descriptor, and the process id of the parent.

    From here on this process cannot outlive the parent, whatever ends that. SIGTERM and SIGINT are the parent's to act on: a
    terminal or a service manager sends them to all processes at once, and draining has an order.
    """
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(1)
    return socket.socket(fileno=descriptor)


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends; on Linux, which alone can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
