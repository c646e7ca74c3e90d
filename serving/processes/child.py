"""How a process that the supervisor starts begins: bound to the supervisor's life, deaf to signals, told its configuration."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from ..config import ServeConfig
from .control import ControlLink

__all__ = ["begin", "config_from_json", "config_to_json", "orphaned"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_CONFIG = TypeAdapter(ServeConfig)


def begin(arguments: Sequence[str]) -> tuple[ControlLink, dict[str, Any], list[int]]:
    """The link to the supervisor, its first message, and the descriptors that came with it.

    `arguments` are the descriptor of the link and the supervisor's process id. From here on this process cannot outlive the
    supervisor, whatever ends that. SIGTERM and SIGINT are the supervisor's to act on: a terminal or a service manager sends
    them to all processes at once, and draining has an order.
    """
    descriptor, parent = int(arguments[1]), int(arguments[2])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(1)
    control = ControlLink(socket.socket(fileno=descriptor))
    received = control.receive()
    if received is None:
        sys.exit(1)
    return control, *received


def orphaned() -> None:
    """The supervisor's end of the link is closed, so it is gone: so is this process, if the kernel has not ended it yet."""
    os._exit(1)


def config_to_json(config: ServeConfig) -> Any:
    """The configuration as JSON values. It is never put on a command line, which every user of the machine can read."""
    return _CONFIG.dump_python(config, mode="json")


def config_from_json(values: Any) -> ServeConfig:
    """The configuration that `config_to_json` wrote."""
    return _CONFIG.validate_python(values)
