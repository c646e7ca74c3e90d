"""A method's name that is not UTF-8 ends grpcio's server loop for ever: found by tests/serving/fuzzing as 2:1147.

The server is made anew on the same port, so that one request of anybody does not close gRPC to everybody.
"""

import asyncio
import contextlib
import http.client
import socket
import struct

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from headrace.serving.config import ServeConfig
from headrace.serving.grpc.server import GrpcServer
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane.data_plane import DataPlane


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _call(path: bytes) -> bytes:
    """A unary call with an empty message, its header fields as literals (RFC 7541, 6.2.2)."""
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"te", b"trailers"))
    fields += ((b"content-type", b"application/grpc"),)
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(1, 4, 1, block) + _frame(0, 1, 1, bytes(5))


def _attack(server, path: bytes) -> None:
    with socket.create_connection(server.grpc.split(":"), timeout=20) as connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(_call(path))
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while connection.recv(65536):
                pass


@pytest.mark.parametrize("frontends", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_name_that_is_not_utf_8(start, slow_models, frontends):
    server = start(slow_models, frontends=frontends)
    request = pb.ModelInferRequest(model_name="slow", raw_input_contents=[np.zeros((8, 3, 16, 16), np.float32).tobytes()])
    request.inputs.add(name="images", datatype="FP32", shape=[8, 3, 16, 16])
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.ModelInfer(request, timeout=60)
        for _ in range(3):
            accepted = [stub.ModelInfer.future(request, timeout=60) for _ in range(4)]
            _attack(server, b"/\x80\xff/x")
            for call in accepted:  # what was accepted is answered; what was not may be sent again
                assert call.code() in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            assert stub.ModelInfer(request, timeout=60, wait_for_ready=True).model_name == "slow"
            with grpc.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as other:
                answer = service_pb2_grpc.GRPCInferenceServiceStub(other).ServerLive(
                    pb.ServerLiveRequest(), timeout=60, wait_for_ready=True
                )
            assert answer.live
    assert server.stop() == 0, server.output
    assert server.output.count("is made anew") >= 1
    assert "Traceback" not in server.output
    assert " ERROR " not in server.output


def test_nothing_waits_in_the_library_when_its_loop_ends(models, monkeypatch):
    """A waiting call of a registered method is freed then while grpcio's core points to it: `grpc_server._register_nothing`."""
    monkeypatch.setattr(grpc.aio.Server, "add_registered_method_handlers", lambda *_: pytest.fail("a method is registered"))

    async def make() -> None:
        config = ServeConfig(models=models)
        GrpcServer(DataPlane(ModelRepository(config), DecodePool(1, limit=1), config))

    asyncio.run(make())


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
