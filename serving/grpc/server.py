"""The gRPC front end: `inference.GRPCInferenceService` over the same data plane as HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ...errors import RequestError
from ...runtime.artifact.triton_messages import POOL
from ..guard.access import Guard
from ..guard.tls import Tls
from ..observe.telemetry import Telemetry
from ..plane.data_plane import DataPlane
from ..protocol.routes import SERVICE
from .arrivals import Arrivals
from .decode_errors import DecodeErrorInterceptor
from .health import Health
from .library import Server
from .methods import AccessInterceptor, Methods, code_of, metadata_of
from .turns import Turns

# Calls are held back before the server stops until none has come for so long, or for so long at most; and how long clients then
# take to read HTTP/2's GOAWAY.
_IDLE_SECONDS, _HOLD_SECONDS, _GOAWAY_SECONDS = 0.3, 2.0, 0.1


class GrpcServer:
    """A grpc.aio server of one data plane, on the running event loop. Processes may share a port, which was reserved."""

    def __init__(
        self,
        plane: DataPlane,
        *,
        access: Guard | None = None,
        tls: Tls | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._access = access
        self._tls = tls
        self._draining = _DrainInterceptor()
        self._health = Health(plane, access)
        limits, turns = plane.config.limits, Turns()
        arrivals = Arrivals(
            plane.bytes, turns, largest=limits.grpc_message_bytes, seconds=limits.body_timeout_seconds,
            give_back=plane.give_back_soon,
        )  # fmt: skip
        self._server = server = Server(
            interceptors=[self._draining, *([AccessInterceptor(access)] if access else []), DecodeErrorInterceptor(arrivals)],
            options=_options(plane),
            unknown=self._unknown,
        )
        server.add_registered_method_handlers(SERVICE, Methods(plane, arrivals, turns, telemetry).handlers())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            POOL.AddSerializedFile(file.serialized_pb)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server, POOL)

    def bind(self, host: str, port: int) -> None:
        """Listen on a port that `processes.ports.Ports` holds for this server, so that nobody else has it."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._tls is not None:
            self._server.add_secure_port(address, self._tls.grpc_credentials())
        else:
            self._server.add_insecure_port(address)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Take no more calls and finish those that run, within `grace` seconds."""
        await self._draining.hold()
        self._health.end()
        stopping = asyncio.ensure_future(self._server.stop(grace))
        await asyncio.sleep(_GOAWAY_SECONDS)
        self._draining.release()
        await stopping

    def _unknown(self, metadata: Any) -> tuple[grpc.StatusCode, str]:
        try:
            if self._access is not None:
                self._access.check_method("", metadata_of(metadata, "authorization"))
        except RequestError as error:
            return code_of(error), str(error)
        return grpc.StatusCode.UNIMPLEMENTED, "this server has no such method; its reflection lists them"


class _DrainInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Holds calls back while the server stops, to be answered once every client knows not to send another on its connection.

    The library cancels calls that arrive while it sends GOAWAY, and a client cannot know whether such a call has run. Held
    calls keep clients that send one after the other from sending any at that moment.
    """

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()
        self._latest = 0.0

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        self._latest = time.monotonic()
        await self._free.wait()
        return await continuation(details)

    async def hold(self) -> None:
        """From now on hold calls back, and let the next ones of all busy clients arrive."""
        self._free.clear()
        begin = self._latest = time.monotonic()
        while (left := min(self._latest + _IDLE_SECONDS, begin + _HOLD_SECONDS) - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def release(self) -> None:
        """Answer those that were held back."""
        self._free.set()


def _options(plane: DataPlane) -> list[tuple[str, int]]:
    config = plane.config
    return [
        ("grpc.so_reuseport", 1),  # for front ends, and for a server that takes another's place; see `processes.ports.Ports`
        ("grpc.max_receive_message_length", config.limits.grpc_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", config.limits.max_header_bytes),
        ("grpc.absolute_max_metadata_size", config.limits.max_header_bytes),
        # Slow or silent clients: a handshake takes no longer than an HTTP head, and who is gone is noticed.
        ("grpc.server_handshake_timeout_ms", int(config.limits.head_timeout_seconds * 1000)),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.max_concurrent_streams", 1024),
    ]
