"""Messages between two processes of a split model: a kind, three numbers and bytes, over a socket that only these two have."""

from __future__ import annotations

import array
import contextlib
import enum
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_HEAD = struct.Struct("<BQQQ")
_MOST_DESCRIPTORS = 2


class Kind(enum.IntEnum):
    """START, with a JSON, begins a process of a split model; READY answers it. One that serves sends ALIVE again and again, and
    FAILED with a text for the serial that it could not compute.

    A rank's READY has the width of the features as `value`. COMPUTE brings features (float32 [rows, width]) and is answered by
    a RESULT or FAILED of the same serial: all scores (float32 [rows, classes]) where `value` is 0, else so many best of each
    row, the three arrays of a `Best`.

    WIRE brings a stage its two descriptors, the links from the stage before it and to the one behind it. On these, VALUES says
    what lies in the memory of slot `value`, as a JSON, with a descriptor where that memory is a new one; CREDIT gives the slot
    back. A stage's ALIVE has its `Totals`."""

    START, READY, COMPUTE, RESULT, FAILED, ALIVE, WIRE, VALUES, CREDIT = range(9)


class Message(NamedTuple):
    """`data` is the receiver's own, and so are the descriptors."""

    kind: Kind
    serial: int
    value: int
    data: bytearray
    descriptors: Sequence[int] = ()


class Link:
    """One end. Any thread may send, one receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(
        self, kind: Kind, serial: int = 0, value: int = 0, *data: bytes | np.ndarray, descriptors: Sequence[int] = ()
    ) -> None:
        """Waits until all is on its way. Descriptors are copied to the other process. Raises OSError when the other end is
        gone."""
        parts = [memoryview(part).cast("B") for part in data if len(part)]  # type: ignore[arg-type]  # arrays are buffers
        head = _HEAD.pack(kind, serial, value, sum(map(len, parts)))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        with self._sending:
            sent = self._socket.sendmsg([head], rights)
            self._socket.sendall(head[sent:])
            for part in parts:
                self._socket.sendall(part)

    def receive(self) -> Message | None:
        """The next message; None when the other end is gone. Raises TimeoutError after a silence of `limit_silence`."""
        descriptors = array.array("i")
        head = self._bytes(_HEAD.size, descriptors)
        if head is not None:
            kind, serial, value, size = _HEAD.unpack(head)
            if (data := self._bytes(size)) is not None:
                return Message(Kind(kind), serial, value, data, tuple(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def limit_silence(self, seconds: float) -> None:
        """How long `receive` waits for a byte. The kernel counts, and not while this process is stopped."""
        whole, part = divmod(seconds, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(whole), int(part * 1e6)))

    def end(self) -> None:
        """End it, for whoever waits on it too; it is to be closed by the thread that receives."""
        with contextlib.suppress(OSError):  # the other end was first, or it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it and free it."""
        self.end()
        with self._sending:  # else another socket could have its descriptor in the middle of a message
            self._socket.close()

    def _bytes(self, size: int, descriptors: array.array[int] | None = None) -> bytearray | None:
        """So many bytes, None when the other end is gone; the descriptors that came with them are added to those."""
        data = bytearray(size)
        view = memoryview(data)
        room = 0 if descriptors is None else socket.CMSG_SPACE(_MOST_DESCRIPTORS * array.array("i").itemsize)
        while view:
            try:
                count, came, _, _ = self._socket.recvmsg_into([view], room, _CLOSE_ON_EXEC)
            except BlockingIOError:
                raise TimeoutError("nothing came") from None
            except OSError:
                return None
            for level, kind, rights in came:
                if descriptors is not None and (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors.frombytes(rights[: len(rights) - len(rights) % descriptors.itemsize])
            if not count:
                return None
            view = view[count:]
        return data


_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # which Linux has
