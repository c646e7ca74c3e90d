"""The server's life: bind, load, warm up, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from ..errors import PenstockError
from .access import load_access
from .config import ServeConfig
from .dataplane import DataPlane
from .decode import DecodePool
from .grpc_server import GrpcServer
from .http import create_app
from .http_edge import Edge
from .http_protocol import options
from .logs import LogSettings, log_output
from .metrics import metrics_app
from .repository import ModelRepository
from .settings import Settings
from .tls import load_tls

__all__ = ["serve"]

log = logging.getLogger("penstock.serving")


def serve(config: ServeConfig) -> None:
    """Serve a models folder until SIGTERM or SIGINT, then answer what was accepted and return. A second signal ends at once.

    Ports are taken before anything is loaded, so that one in use fails immediately. Progress and the addresses go to stdout.
    Raises ArtifactError when no model can be served and PenstockError when a port is taken.
    """
    repository = ModelRepository(config)
    with log_output(config.log_format) as log_settings, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Server(config, repository, log_settings).run())


class _Http(uvicorn.Server):
    """uvicorn without its own signal handling, which would race with ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server:
    def __init__(self, config: ServeConfig, repository: ModelRepository, log_settings: LogSettings) -> None:
        self._config = config
        self._access = load_access(config.token_file) if config.token_file else None
        self._tls = load_tls(config)
        self._repository = repository
        self._decoder = DecodePool(config.decoders, limit=config.max_queue)
        self._plane = DataPlane(repository, self._decoder, config, settings=Settings(log_settings))
        self._stop = asyncio.Event()
        self._ports: dict[str, int] = {}

    async def run(self) -> None:
        config = self._config
        loop = asyncio.get_running_loop()
        servers, sockets, grpc = [], [], None
        try:
            apps = (
                ("http", config.http_port, create_app(self._plane)),
                ("metrics", config.metrics_port, metrics_app(self._repository)),
            )
            for name, port, app in apps:
                if port is not None:
                    sockets.append(_bind(config.host, port, name))
                    self._ports[name] = sockets[-1].getsockname()[1]
                    edge = Edge(app, access=self._access, log=config.access_log and name == "http")
                    settings = options(config, self._tls)
                    servers.append(_Http(uvicorn.Config(edge, timeout_graceful_shutdown=int(config.drain_seconds), **settings)))
            if config.grpc_port is not None:
                grpc = GrpcServer(self._plane, access=self._access, tls=self._tls)
                self._ports["grpc"] = grpc.bind(config.host, config.grpc_port)
        except BaseException:
            for opened in sockets:
                opened.close()
            self._decoder.close()
            raise
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        serving = [asyncio.create_task(server.serve([bound])) for server, bound in zip(servers, sockets, strict=True)]
        if grpc is not None:
            await grpc.start()
        try:
            await self._load()
            await self._stop.wait()
        finally:
            self._repository.drain()
            for server in servers:
                server.should_exit = True
            if grpc is not None:
                await grpc.stop(config.drain_seconds)
            await asyncio.gather(*serving)
            await loop.run_in_executor(None, self._repository.close)
            self._decoder.close()

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        loading = loop.run_in_executor(None, self._repository.load, _say)
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((loading, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await loading
        if self._stop.is_set():
            return
        ready = ", ".join(dict.fromkeys(model.name for model in self._repository.ready_models())) or "no model yet"
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        scheme = "https" if self._tls else "http"
        schemes = {"http": f"{scheme}://", "metrics": f"metrics {scheme}://", "grpc": "gRPC "}
        paths = {"metrics": "/metrics"}
        where = [f"{schemes[name]}{host}:{port}{paths.get(name, '')}" for name, port in self._ports.items()]
        _say(f"serving {ready} at {', '.join(where)}; try {where[0]}/docs")
        if self._config.ready_file is not None:
            _write_ready(self._config.ready_file, {**self._ports, "pid": os.getpid()})

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        _say("draining: no new requests are taken, accepted ones are answered; a second signal ends at once")
        self._repository.drain()
        self._stop.set()


def _bind(host: str, port: int, name: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise PenstockError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --{name}-port, or 0 for any free one"
        ) from error
    bound.setblocking(False)
    return bound


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _write_ready(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, as somebody waits for this file to appear."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content), encoding="utf-8")
    aside.replace(path)
