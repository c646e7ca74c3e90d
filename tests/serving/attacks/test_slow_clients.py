"""Clients that take for ever: heads, bodies and answers have a time, so that nobody holds connections by being slow."""

import contextlib
import socket
import time

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

# The target gives heads 1 s and bodies 2 s. That something ends is what is tested; how long it took is not.
PATIENCE = 120
REQUEST = b"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"


def _until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /v2 HT", REQUEST[:-2], REQUEST[:20]])
def test_a_head_that_never_ends(target, sent):
    with socket.create_connection(target.http.split(":"), timeout=PATIENCE) as connection:
        connection.sendall(sent)
        answer = _until_closed(connection)
    assert answer == b"" if not sent else b" 408 " in answer


def test_a_head_byte_by_byte(target):
    with socket.create_connection(target.http.split(":"), timeout=PATIENCE) as connection:
        try:
            while True:
                connection.sendall(b"A")
                time.sleep(0.05)
        except OSError:
            pass


def test_a_second_request_that_never_ends(target):
    with socket.create_connection(target.http.split(":"), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v2")
        answer = _until_closed(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b" 408 " in answer


def test_a_body_that_never_ends(target):
    with socket.create_connection(target.http.split(":"), timeout=PATIENCE) as connection:
        connection.sendall(REQUEST + b"x")
        assert b"did not arrive" in _until_closed(connection)


def test_a_body_that_comes_drop_by_drop(start, models):
    """It holds memory meanwhile, and could be sent anew each time: the time for all of it is not what ends it."""
    server = start(models, body_timeout_seconds=30.0)
    with socket.create_connection(server.http.split(":"), timeout=PATIENCE) as connection:
        connection.sendall(REQUEST.replace(b"1000", b"8000000") + bytes(1 << 20))
        connection.settimeout(0.2)
        begin, received = time.monotonic(), b""
        while not received:
            with contextlib.suppress(TimeoutError):
                received = connection.recv(65536)
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"x")
    assert b" 408 " in received
    assert time.monotonic() - begin < 28


def test_an_answer_that_is_never_read(target):
    """The server gives up instead of keeping the answers."""

    def ask_without_reading(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
            time.sleep(0.01)

    with socket.create_connection(target.http.split(":"), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            ask_without_reading(connection)


def test_requests_that_do_not_wait_for_answers(target):
    """Their number on one connection is bounded; each costs far more memory than its bytes."""
    with (
        socket.create_connection(target.http.split(":"), timeout=PATIENCE) as connection,
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
    ):
        for _ in range(100):
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000)
        raise AssertionError("half a million requests were taken")


def test_hundreds_at_once_do_not_keep_others_out(target, request_to, make_photo):
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(target.http.split(":"), timeout=PATIENCE)) for _ in range(300)
        ]
        for number, connection in enumerate(connections):
            connection.sendall((REQUEST + b"x")[: 5 + number % len(REQUEST)])
        for number in range(20):
            assert request_to(target.http, "POST", "/v1/classify/tiny", make_photo(number))[0] == 200
        for connection in connections:
            _until_closed(connection)


def test_silent_grpc_connections_and_streams(target):
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(target.grpc.split(":"), timeout=PATIENCE)) for _ in range(50)]
        silent[0].sendall(b"PRI * HTTP/2.0\r\n")
        with grpc.insecure_channel(target.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert stub.ServerLive(pb.ServerLiveRequest(), timeout=PATIENCE).live
        for connection in silent:
            _until_closed(connection)  # the handshake has its time too
