"""A method's name that is not UTF-8 ended grpcio's server loop for ever: found by tests/serving/fuzzing as 2:1147.

Such a call is answered before that loop sees it, so that it costs nobody else anything.
"""

import contextlib
import http.client
import socket
import struct

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _call(path: bytes) -> bytes:
    """A unary call with an empty message, its header fields as literals (RFC 7541, 6.2.2)."""
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"te", b"trailers"))
    fields += ((b"content-type", b"application/grpc"),)
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 4, 1, block) + _frame(0, 1, 1, bytes(5))


def _attack(server, path: bytes) -> bytes:
    received = b""
    with socket.create_connection(server.grpc.split(":"), timeout=20) as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(_call(path))
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while part := connection.recv(65536):
                received += part
    return received


@pytest.mark.parametrize("frontends", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_name_that_is_not_utf_8_costs_nobody_a_call(start, slow_models, frontends):
    server = start(slow_models, frontends=frontends)
    request = pb.ModelInferRequest(model_name="slow", raw_input_contents=[np.zeros((8, 3, 16, 16), np.float32).tobytes()])
    request.inputs.add(name="images", datatype="FP32", shape=[8, 3, 16, 16])
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.ModelInfer(request, timeout=60)
        calls = []
        for _ in range(3):
            calls += [stub.ModelInfer.future(request, timeout=60) for _ in range(4)]
            assert b"no such method" in _attack(server, b"/\x80\xff/x")
        assert {call.code() for call in calls} == {grpc.StatusCode.OK}
    assert server.stop() == 0, server.output
    assert "Traceback" not in server.output
    assert " ERROR " not in server.output


def test_many_of_them_damage_nothing(start, models):
    """With connections that come and go beside them, whose parsers would lie where the library writes: the process lives."""
    server = start(models)
    host, port = server.grpc.split(":")
    for _ in range(150):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(_call(b"/\x80\xff/x"))
            connection.settimeout(0.3)
            connection.recv(100)
        for _ in range(3):
            with contextlib.closing(http.client.HTTPConnection(server.http, timeout=20)) as client:
                client.request("GET", "/v2/health/live")
                assert client.getresponse().status == 200
    assert server.stop() == 0, server.output
