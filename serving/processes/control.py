"""Between the supervisor and one of its processes: rare commands and events as JSON, some with file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["ControlLink"]

_MAX_BYTES = 1 << 16
_MAX_DESCRIPTORS = 4
Handler = Callable[[dict[str, Any], list[int]], None]


class ControlLink:
    """One end of a socket pair whose messages arrive whole or not at all."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @staticmethod
    def pair() -> tuple[ControlLink, socket.socket]:
        """One end to use here, the other to be given to a process."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return ControlLink(here), there

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors stay open here. Raises OSError when the other end is gone or does not listen."""
        data = json.dumps(message).encode()
        if len(data) > _MAX_BYTES:
            raise ValueError(f"a control message of {len(data)} bytes; at most {_MAX_BYTES} are taken")
        if descriptors:
            socket.send_fds(self._socket, [data], list(descriptors))
        else:
            self._socket.send(data)

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Wait for the next message and its descriptors; None when the other end is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._socket, _MAX_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        return (json.loads(data), descriptors) if data else None

    def listen(self, on_message: Handler, on_end: Callable[[], None] = lambda: None) -> None:
        """Call `on_message` on the running event loop for what arrives from now on, and `on_end` once at the end."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)

        def readable() -> None:
            try:
                received = self.receive()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                received = None
            if received is None:
                self.close()
                on_end()
            else:
                on_message(*received)

        loop.add_reader(self._socket, readable)

    def close(self) -> None:
        """Close this end; safe to call twice."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(RuntimeError):  # no loop runs, so none listens
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
