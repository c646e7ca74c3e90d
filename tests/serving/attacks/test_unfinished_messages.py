"""gRPC messages that are announced and mostly sent, and never finished: memory that no budget would count."""

import contextlib
import http.client
import socket
import struct
import threading
import time

import psutil
import pytest

MIB = 1 << 20
ANNOUNCED, SENT, CONNECTIONS = 8 * MIB, 7 * MIB, 16
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
INFER, CHECK = b"/inference.GRPCInferenceService/ModelInfer", b"/grpc.health.v1.Health/Check"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _opening(path: bytes) -> bytes:
    """A connection's beginning and the head of one call (RFC 7541, 6.2.2)."""
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"te", b"trailers"))
    fields += ((b"content-type", b"application/grpc"),)
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, 4, 1, block)


class Unfinished:
    """A call that sends most of its message, as fast as the server takes it, and then only answers pings."""

    def __init__(self, address: str, path: bytes, announced: int = ANNOUNCED, sent: int = SENT):
        self.code: int | None = None
        self.ended = threading.Event()
        self.sent = 0
        self._left = b"\0" + struct.pack(">I", announced) + bytes(sent - 5)
        self._windows, self._initial = {0: 65535, 1: 65535}, 65535
        self._socket = socket.create_connection(address.split(":"), timeout=60)
        self._socket.sendall(_opening(path))
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _work(self):
        received = b""
        with contextlib.suppress(OSError):
            while True:
                while (size := min(16384, len(self._left), *self._windows.values())) > 0:
                    self._socket.sendall(_frame(_DATA, 0, 1, self._left[:size]))
                    self._left = self._left[size:]
                    self.sent += size
                    self._windows = {stream: window - size for stream, window in self._windows.items()}
                received += (part := self._socket.recv(65536))
                if not part:
                    break
                while len(received) >= 9 and len(received) >= (end := 9 + int.from_bytes(received[:3], "big")):
                    self._take(received[3], received[4], int.from_bytes(received[5:9], "big"), received[9:end])
                    received = received[end:]
        self.ended.set()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes):
        if kind == _WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind == _SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == 4:
                    self._windows[1] += value - self._initial
                    self._initial = value
            self._socket.sendall(_frame(_SETTINGS, 1, 0, b""))
        elif kind == _PING and not flags & 1:
            self._socket.sendall(_frame(_PING, 1, 0, payload))
        elif kind == _HEADERS and flags & 1:  # the trailers, whose status is no Huffman code
            self.code = int(payload.partition(b"grpc-status")[2][1:3].strip(b"\0@ ").decode("latin-1")[:2].strip() or -1)
            self.ended.set()


@pytest.mark.parametrize("path", [INFER, pytest.param(CHECK, marks=pytest.mark.slow)])  # messages are counted by the library
def test_unfinished_messages_of_one_client_cost_no_more_than_its_share(start, models, make_photo, path):
    """The library collects them without saying how much there is, so that each counts as the longest after a second."""
    server = start(models, max_inflight_bytes=32 * MIB, max_body_bytes=2 * ANNOUNCED, body_timeout_seconds=30.0)
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    with contextlib.ExitStack() as stack:
        calls = [stack.enter_context(contextlib.closing(Unfinished(server.grpc, path))) for _ in range(CONNECTIONS)]
        end = time.monotonic() + 25
        while sum(call.ended.is_set() for call in calls) < CONNECTIONS - 2 and time.monotonic() < end:
            time.sleep(0.1)
        assert sum(not call.ended.is_set() for call in calls) == 2, "its half of the budget is two messages"
        assert {call.code for call in calls if call.ended.is_set()} == {14}, "UNAVAILABLE"
        while process.memory_info().rss - before > 64 * MIB and time.monotonic() < end:
            time.sleep(0.1)
        assert process.memory_info().rss - before <= 64 * MIB
        other = http.client.HTTPConnection(*server.http.split(":"), timeout=20, source_address=("127.0.0.2", 0))
        other.request("POST", "/v1/classify/tiny", make_photo(0))
        assert other.getresponse().status == 200
        other.close()
    assert server.stop() == 0, server.output
    assert "Traceback" not in server.output


def test_a_message_that_does_not_arrive_ends_in_time(start, models):
    server = start(models, body_timeout_seconds=2.0)
    with contextlib.closing(Unfinished(server.grpc, INFER)) as call:
        assert call.ended.wait(30)
        assert call.code == 4, "DEADLINE_EXCEEDED"
    assert server.stop() == 0, server.output
    assert "Traceback" not in server.output


def test_long_messages_to_the_library_s_own_services(start, models):
    """20 MiB of fields that nobody knows, read for the health of a service, stop the loop for as long as they take."""
    server = start(models)
    with contextlib.closing(Unfinished(server.grpc, CHECK, 20 * MIB, 20 * MIB + 5)) as call:
        assert call.ended.wait(120)
        assert call.code == 8, "RESOURCE_EXHAUSTED"
    assert server.stop() == 0, server.output
