"""Between the supervisor and one of its processes: rare messages, some with file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence

from .messages import Message
from .wire import WireError, decode, encode

log = logging.getLogger("headrace.serving")

_MAX_BYTES = 1 << 16
_MAX_DESCRIPTORS = 4
Handler = Callable[[Message, list[int]], None]


class ControlLink:
    """One end of a socket pair whose messages arrive whole or not at all."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @staticmethod
    def pair() -> tuple[ControlLink, socket.socket]:
        """One end to use here, the other to be given to a process."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return ControlLink(here), there

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors stay open here. Raises OSError when the other end is gone or does not listen."""
        data = encode(message)
        if len(data) > _MAX_BYTES:
            raise ValueError(f"a {type(message).__name__} message of {len(data)} bytes; at most {_MAX_BYTES} are taken")
        if descriptors:
            socket.send_fds(self._socket, [data], list(descriptors))
        else:
            self._socket.send(data)

    def receive(self) -> tuple[Message, list[int]] | None:
        """Wait for the next message and its descriptors; None when the other end is gone. Raises WireError on anything else."""
        data, descriptors, _, _ = socket.recv_fds(self._socket, _MAX_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return None
        try:
            return decode(data), descriptors
        except WireError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def listen(self, on_message: Handler, on_end: Callable[[], None] = lambda: None) -> None:
        """Call `on_message` on the running event loop for what arrives from now on, and `on_end` once at the end. The end is
        that of the other process, or a message that none of ours sends."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)

        def readable() -> None:
            try:
                received = self.receive()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                received = None
            except WireError as error:
                log.error("a process of this server sent what it never should: %s", error)
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
