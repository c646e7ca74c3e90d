"""One half of a stream socket between two processes: whole messages in, messages out from any thread, never blocking."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable

from .messages import Message
from .wire import Reader, WireError, encode

log = logging.getLogger("headrace.serving")

_READ_BYTES = 1 << 16


class Channel:
    """Messages over `connected`, on the running event loop, which calls `on_message` for each and `on_end` once at the end. The
    end is that of the other process, a message that none of ours sends, or `close`."""

    def __init__(
        self, connected: socket.socket, on_message: Callable[[Message], None], on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._socket = connected
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._reader = Reader()
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._posted: list[bytes] = []
        self._ended = False
        connected.setblocking(False)
        self._loop.add_reader(connected, self._readable)

    def send(self, message: Message) -> None:
        """Send a moment later, together with what else comes until the event loop is there: one system call for what a read or
        a batch brings, and one time that the other process wakes up. After the end, does nothing.

        No thread sends by itself. It would let go of the interpreter while it holds the lock, and the event loop would wait
        for both: 0.4 ms a request with two decoding threads.
        """
        data = encode(message)
        with self._lock:
            if self._ended:
                return
            self._posted.append(data)
            if len(self._posted) > 1:
                return
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._post)
        else:
            self._loop.call_soon_threadsafe(self._post)

    def _post(self) -> None:
        """In the order in which it came; on the event loop, as all that follows."""
        with self._lock:
            data = b"".join(self._posted)
            self._posted.clear()
        if self._ended or not data:
            return
        if self._unsent:
            self._unsent += data
            return
        sent = self._send_some(data)
        if sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._socket, self._writable)

    def close(self) -> None:
        """End it here; what the socket does not take at once is lost."""
        if self._ended:
            return
        self._post()
        with self._lock:
            self._ended = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._on_end()

    def _send_some(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # the other side is gone, which the reader is about to see
            return len(data)

    def _writable(self) -> None:
        del self._unsent[: self._send_some(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        try:
            for message in self._reader.feed(data):
                self._on_message(message)
        except WireError as error:
            log.error("a process of this server sent what it never should: %s", error)
            data = b""
        if not data:
            self.close()
