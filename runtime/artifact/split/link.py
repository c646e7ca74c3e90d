"""Messages between a session and its ranks: a kind, three numbers and bytes, over a socket that only these two have."""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from typing import NamedTuple

import numpy as np

_HEAD = struct.Struct("<BQQQ")


class Kind(enum.IntEnum):
    """START, with a JSON, begins a rank; READY answers it, `value` being the width of the features. COMPUTE brings features
    (float32 [rows, width]) and is answered by a RESULT or FAILED of the same serial: all scores (float32 [rows, classes]) where
    `value` is 0, else so many best of each row, the three arrays of a `Best`. FAILED has a text. A rank that serves sends ALIVE
    again and again."""

    START, READY, COMPUTE, RESULT, FAILED, ALIVE = range(6)


class Message(NamedTuple):
    """`data` is the receiver's own."""

    kind: Kind
    serial: int
    value: int
    data: bytearray


class Link:
    """One end. Any thread may send, one receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, kind: Kind, serial: int = 0, value: int = 0, *data: bytes | np.ndarray) -> None:
        """Waits until all is on its way. Raises OSError when the other end is gone."""
        parts = [memoryview(part).cast("B") for part in data if len(part)]  # type: ignore[arg-type]  # arrays are buffers
        with self._sending:
            self._socket.sendall(_HEAD.pack(kind, serial, value, sum(map(len, parts))))
            for part in parts:
                self._socket.sendall(part)

    def receive(self) -> Message | None:
        """The next message; None when the other end is gone. Raises TimeoutError after a silence of `limit_silence`."""
        head = self._bytes(_HEAD.size)
        if head is None:
            return None
        kind, serial, value, size = _HEAD.unpack(head)
        data = self._bytes(size)
        return None if data is None else Message(Kind(kind), serial, value, data)

    def limit_silence(self, seconds: float) -> None:
        """How long `receive` waits for a byte. The kernel counts, and not while this process is stopped."""
        whole, part = divmod(seconds, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(whole), int(part * 1e6)))

    def close(self) -> None:
        """End it, for whoever waits on it too."""
        with contextlib.suppress(OSError):  # the other end was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _bytes(self, size: int) -> bytearray | None:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except BlockingIOError:
                raise TimeoutError("nothing came") from None
            except OSError:
                return None
            if not count:
                return None
            view = view[count:]
        return data
