"""The whole server in one process: what small machines need, without a copy or a message between processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

from ..config import ServeConfig
from ..images.decode_pool import DecodePool
from ..models.repository import ModelRepository
from ..observe.logs import LogSettings
from ..observe.metrics import metrics_app
from ..observe.telemetry import Telemetry
from ..plane.data_plane import DataPlane
from ..plane.settings import Settings
from ..ready_file import report, serving_line, write_ready
from .endpoints import Endpoints, listen


class SingleProcess:
    """Front ends, data plane, decode pool and models on one event loop and its threads."""

    def __init__(self, config: ServeConfig, repository: ModelRepository, log_settings: LogSettings) -> None:
        self._config = config
        self._repository = repository
        self._decoder = DecodePool(config.images.decoders, limit=config.batching.max_queue)
        self._plane = DataPlane(repository, self._decoder, config, settings=Settings(log_settings))
        self._telemetry = Telemetry(config.observe.trace_otlp) if config.observe.trace_otlp else None
        self._stop = asyncio.Event()
        self._ports: dict[str, int] = {}

    async def run(self) -> None:
        """Serve until a signal; raises ArtifactError when no model can be served and HeadraceError when a port is taken."""
        loop = asyncio.get_running_loop()
        endpoints, bound = self._bind()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        # Opening sessions leaves Python alone, which meanwhile imports what takes longest.
        loading = loop.run_in_executor(None, self._repository.load, report)
        try:
            self._add_http(endpoints, bound)
            await endpoints.start()
            await self._load(loading)
            await self._stop.wait()
        finally:
            self._repository.drain()
            await endpoints.stop()
            await loop.run_in_executor(None, self._repository.close)
            self._decoder.close()
            if self._telemetry is not None:
                await loop.run_in_executor(None, self._telemetry.close)

    def _bind(self) -> tuple[Endpoints, dict[str, socket.socket]]:
        """Take the ports, so that one in use fails before anything is loaded."""
        config = self._config
        endpoints = Endpoints(config, telemetry=self._telemetry)
        bound: dict[str, socket.socket] = {}
        try:
            for name, port in (("http", config.addresses.http_port), ("metrics", config.addresses.metrics_port)):
                if port is not None:
                    bound[name] = listen(config.addresses.host, port, name)
                    self._ports[name] = int(bound[name].getsockname()[1])
            if config.addresses.grpc_port is not None:
                self._ports["grpc"] = endpoints.add_grpc(self._plane, config.addresses.host, config.addresses.grpc_port)
        except BaseException:
            for one in bound.values():
                one.close()
            endpoints.close()
            self._decoder.close()
            raise
        return endpoints, bound

    def _add_http(self, endpoints: Endpoints, bound: dict[str, socket.socket]) -> None:
        from ..http.app import create_app

        endpoints.add_http(create_app(self._plane), bound["http"], log=self._config.observe.access_log)
        if "metrics" in bound:
            endpoints.add_http(metrics_app(self._repository), bound["metrics"])

    async def _load(self, loading: asyncio.Future[None]) -> None:
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((loading, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await loading
        if self._stop.is_set():
            return
        report(serving_line((model.name for model in self._repository.ready_models()), self._config, self._ports))
        if self._config.addresses.ready_file is not None:
            write_ready(self._config.addresses.ready_file, {**self._ports, "pid": os.getpid()})

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        report("draining: no new requests are taken, accepted ones are answered; a second signal ends at once")
        self._repository.drain()
        self._stop.set()
