"""What a client says must not look like a line of the server's log."""

import contextlib
import socket
import struct

FORGED = b"\n2026-01-01 00:00:00,000 INFO headrace.serving: all is well"


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, 0, 0, 0, 0, 0]) + payload


def test_a_grpc_client_that_says_goodbye(start, models):
    server = start(models)
    goodbye = _frame(7, struct.pack(">II", 0, 2) + FORGED)
    with socket.create_connection(server.grpc.split(":"), timeout=20) as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, b"") + goodbye)
        connection.settimeout(2)
        with contextlib.suppress(TimeoutError):
            while connection.recv(65536):
                pass
    assert server.stop() == 0
    assert "all is well" not in server.output


def test_an_http_client(start, models, raw_to):
    server = start(models)
    for path in (b"/v2/models/a%0A" + FORGED[1:].replace(b" ", b"%20") + b"/infer", b"/v1/classify/a%0Aall%20is%20well"):
        raw_to(server.http, b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert server.stop() == 0
    assert not [line for line in server.output.splitlines() if line.startswith(("2026-01-01", "all is well"))]
