"""Where requests come in: listening sockets, the servers on them, and how they stop without losing what was accepted."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import uvicorn

from ...errors import HeadraceError
from ..config import ServeConfig
from ..grpc.server import GrpcServer
from ..guard.access import guard_of
from ..guard.hosts import known_hosts
from ..guard.tls import load_tls
from ..http.connection import HttpServer, options
from ..http.edge import Edge
from ..http.kept_paths import KeptPaths
from ..observe.telemetry import Telemetry, TracedApplication
from ..plane.data_plane import DataPlane

log = logging.getLogger("headrace.serving")

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h; the socket module does not name it
# Classic BPF on what begins with a TCP header (RFC 9293, 3.1): drop segments whose flags are SYN without ACK, keep the rest.
_DROP_SYN = ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


def listen(host: str, port: int, name: str, *, shared: bool = False) -> socket.socket:
    """A listening socket; with `shared`, one of several of our processes, among which the kernel divides the connections.
    Raises HeadraceError naming the flag when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=2048, reuse_port=shared)
    except OSError as error:
        raise HeadraceError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --{name}-port, or 0 for any free one"
        ) from error
    bound.setblocking(False)
    return bound


def refuse_connections(listening: socket.socket) -> None:
    """Let no new connection begin, while those that wait to be accepted stay: closing a listener would reset them.

    Who tries meanwhile is not answered, tries again after a second, and is refused then. Where the kernel cannot do that, new
    connections just go on until the socket is closed.
    """
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_SYN))
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(_DROP_SYN), ctypes.addressof(program)))


class Endpoints:
    """The servers of one process, on sockets that are bound already; all on the running event loop. Tokens and certificates are
    read when this is made. Raises HeadraceError when a file of theirs cannot be used."""

    def __init__(self, config: ServeConfig, *, telemetry: Telemetry | None = None) -> None:
        self._config = config
        self._telemetry = telemetry
        self._access = guard_of(config)
        self._hosts = known_hosts(
            config.addresses.host, config.security.allowed_hosts, tokens=config.security.token_file is not None
        )
        self._tls = load_tls(config)
        self._listening: list[tuple[HttpServer, socket.socket]] = []
        self._grpc: GrpcServer | None = None
        self._serving: list[asyncio.Task[None]] = []

    def add_http(self, app: App, bound: socket.socket, *, log: bool = False, kept: Mapping[str, str] | None = None) -> None:
        """Serve an ASGI application on a listening socket, which is closed at the end. With `log`, every request has its line
        in the access log. `kept` has the paths that stand for others."""
        settings = options(self._config, self._tls)
        edge: App = Edge(app, access=self._access, hosts=self._hosts, log=log)
        if self._telemetry is not None:
            edge = TracedApplication(edge, self._telemetry)
        if kept:
            edge = KeptPaths(edge, kept)
        config = uvicorn.Config(edge, timeout_graceful_shutdown=int(self._config.processes.drain_seconds), **settings)
        self._listening.append((HttpServer(config), bound))

    def add_grpc(self, plane: DataPlane, host: str, port: int) -> None:
        """Serve the data plane over gRPC on a port of `Ports`."""
        self._grpc = GrpcServer(plane, access=self._access, tls=self._tls, telemetry=self._telemetry)
        self._grpc.bind(host, port)

    async def start(self) -> None:
        """Take requests from now on."""
        self._serving = [asyncio.create_task(server.serve([bound])) for server, bound in self._listening]
        if self._grpc is not None:
            await self._grpc.start()

    async def stop(self) -> None:
        """Take no more connections, answer every request that was accepted, and close; at most for `drain_seconds`."""
        for server, bound in self._listening:
            refuse_connections(bound)
            server.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(self._config.processes.drain_seconds)
        await asyncio.gather(*self._serving)
