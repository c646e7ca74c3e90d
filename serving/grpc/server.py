"""The gRPC front end: `inference.GRPCInferenceService` over the same data plane as HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ...runtime.artifact.triton_messages import POOL
from ..guard.access import Guard
from ..guard.tls import Tls
from ..observe.telemetry import Telemetry
from ..plane.data_plane import DataPlane
from ..protocol.routes import SERVICE
from .decode_errors import DecodeErrorInterceptor
from .health import Health
from .methods import AccessInterceptor, Methods

log = logging.getLogger("headrace.serving")

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
        self._plane = plane
        self._access = access
        self._telemetry = telemetry
        self._tls = tls
        self._draining = _DrainInterceptor()
        self._address = ""
        self._health = Health(plane, access)
        self._stopping = False
        self._background: set[asyncio.Task[None]] = set()
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_worth_logging)
        self._server = self._make_server()

    def _make_server(self) -> Any:
        plane, access = self._plane, self._access
        server = grpc.aio.server(
            interceptors=[self._draining, *([AccessInterceptor(access)] if access else []), DecodeErrorInterceptor()],
            options=_options(plane),
        )
        server.add_generic_rpc_handlers([Methods(plane, self._telemetry).handler()])
        server.add_registered_method_handlers = _register_nothing
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            POOL.AddSerializedFile(file.serialized_pb)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server, POOL)
        return server

    def bind(self, host: str, port: int) -> None:
        """Listen on a port that `processes.ports.Ports` holds for this server, so that nobody else has it."""
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._listen()

    def _listen(self) -> None:
        if self._tls is not None:
            self._server.add_secure_port(self._address, self._tls.grpc_credentials())
        else:
            self._server.add_insecure_port(self._address)

    async def start(self) -> None:
        before = asyncio.all_tasks()
        await self._server.start()
        # The library's own loop ends for ever, and closes the port, over a method's name that is not UTF-8, which anybody may
        # send. Nothing reports that, but its task is among those that `start` has made.
        for task in asyncio.all_tasks() - before:
            if _runs(task, "_server_main_loop"):
                task.add_done_callback(self._library_ended)

    def _library_ended(self, task: asyncio.Task[Any]) -> None:
        if not self._stopping and not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the gRPC library gave up over what a client sent (%s); its server is made anew", type(error).__name__)
            for other in asyncio.all_tasks():
                if _runs(other, "AioServer.shutdown"):  # fails in the same way, which the event loop would log if nobody looked
                    other.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._run_beside(self._restart())

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        running = asyncio.get_running_loop().create_task(work)
        self._background.add(running)
        running.add_done_callback(self._background.discard)

    async def _restart(self) -> None:
        """A new server on the same port; calls that the old one has taken are answered still."""
        old, self._server = self._server, self._make_server()
        if not self._stopping:
            self._listen()
            await self.start()
        await old.stop(self._plane.config.processes.drain_seconds)

    async def stop(self, grace: float) -> None:
        """Take no more calls and finish those that run, within `grace` seconds."""
        self._stopping = True
        await self._draining.hold()
        self._health.end()
        stopping = asyncio.ensure_future(self._server.stop(grace))
        await asyncio.sleep(_GOAWAY_SECONDS)
        self._draining.release()
        await stopping
        await asyncio.gather(*self._background)


def _runs(task: asyncio.Task[Any], name: str) -> bool:
    return str(getattr(task.get_coro(), "__qualname__", "")).endswith(name)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """For the library's log: false for what clients can make it write, as often as they like.

    That is the error that its loop ends with, whose meaning the server logs, and tracebacks over metadata that are no
    text and over connections that break in the midst of a call, with the bytes that broke them.
    """
    text = str(record.msg)
    noise = "ExecuteBatchError raised in core" in text or text.startswith("Invalid encoding on")
    return not (noise or isinstance(record.msg, UnicodeDecodeError))


def _register_nothing(service: str, handlers: Any) -> None:
    """Instead of a server's `add_registered_method_handlers`; its generic handlers answer the same methods.

    For each registered method the library keeps a call waiting in its core. When its own loop ends (see `start`), it frees
    those while the core still points to them, and the core, shutting down, writes zeros there, into whatever has the memory
    by then: anybody could make this process crash (seen with grpcio 1.85.1, aio/server.pyx.pxi, `_server_main_loop`). The one
    generic call that waits has just come when that happens.
    """


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
        ("grpc.max_receive_message_length", config.limits.max_body_bytes),
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
