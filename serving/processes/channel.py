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
        self._reader = Reader()
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._posted: list[bytes] = []
        self._ended = False
        connected.setblocking(False)
        self._loop.add_reader(connected, self._readable)

    def send(self, message: Message) -> None:
        """Send, or keep until there is room; after the end, does nothing."""
        data = encode(message)
        with self._lock:
            if not self._ended:
                self._posted.append(data)
                self._send_posted()

    def post(self, message: Message) -> None:
        """The same a moment later, together with what else is posted meanwhile: one system call for the answers of a batch, and
        one time that the other process wakes up."""
        data = encode(message)
        with self._lock:
            if self._ended:
                return
            self._posted.append(data)
            if len(self._posted) > 1:
                return
        self._loop.call_soon_threadsafe(self._post)

    def _post(self) -> None:
        with self._lock:
            if not self._ended:
                self._send_posted()

    def _send_posted(self) -> None:
        """In the order in which it came, with the lock held."""
        data = b"".join(self._posted)
        self._posted.clear()
        if data and not self._unsent:
            sent = self._send_some(data)
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.call_soon_threadsafe(self._watch)
        self._unsent += data

    def close(self) -> None:
        """End it here; what is unsent is lost."""
        with self._lock:
            if self._ended:
                return
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

    def _watch(self) -> None:
        with self._lock:
            if not self._ended and self._unsent:
                self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        with self._lock:
            if self._ended:
                return
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
