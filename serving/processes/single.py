"""The whole server in one process: what small machines need, without a copy or a message between processes."""

from __future__ import annotations

import asyncio
import os
import signal

from ..config import ServeConfig
from ..images.decode_pool import DecodePool
from ..models.kept_routes import kept_routes
from ..models.repository import ModelRepository
from ..observe.logs import LogSettings
from ..observe.metrics import metrics_app
from ..observe.telemetry import Telemetry
from ..plane.data_plane import DataPlane
from ..plane.settings import Settings
from ..ready_file import announce, report
from .endpoints import Endpoints
from .ports import Ports


class SingleProcess:
    """Front ends, data plane, decode pool and models on one event loop and its threads."""

    def __init__(self, config: ServeConfig, repository: ModelRepository, log_settings: LogSettings) -> None:
        self._config = config
        self._telemetry = Telemetry(config.observe.trace_otlp) if config.observe.trace_otlp else None
        self._repository = repository
        self._ports = Ports(config, "http", "metrics")
        self._endpoints = Endpoints(config, telemetry=self._telemetry)
        self._decoder = DecodePool(config.images.decoders, limit=config.max_queue)
        self._plane = DataPlane(repository, self._decoder, config, settings=Settings(log_settings))
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal; raises ArtifactError when no model can be served."""
        loop, endpoints = asyncio.get_running_loop(), self._endpoints
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        # Opening sessions leaves Python alone, which meanwhile imports what takes longest.
        loading = loop.run_in_executor(None, self._repository.load, report)
        try:
            self._add_servers()
            await endpoints.start()
            await self._load(loading)
            await self._stop.wait()
        finally:
            self._repository.drain()
            await endpoints.stop()
            self._ports.close()
            await loop.run_in_executor(None, self._repository.close)
            self._decoder.close()
            if self._telemetry is not None:
                await loop.run_in_executor(None, self._telemetry.close)

    def _add_servers(self) -> None:
        from ..http.app import create_app

        bound, numbers = self._ports.listening, self._ports.numbers
        kept = kept_routes(self._config)
        app, log = create_app(self._plane, kept), self._config.observe.access_log
        self._endpoints.add_http(app, bound["http"], log=log, kept=kept.paths if kept is not None else None)
        if "metrics" in bound:
            self._endpoints.add_http(metrics_app(self._repository), bound["metrics"])
        if "grpc" in numbers:
            self._endpoints.add_grpc(self._plane, self._config.addresses.host, numbers["grpc"])

    async def _load(self, loading: asyncio.Future[None]) -> None:
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((loading, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await loading
        if self._stop.is_set():
            return
        announce((model.name for model in self._repository.ready_models()), self._config, self._ports.numbers)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        report("draining: no new requests are taken, accepted ones are answered; a second signal ends at once")
        self._repository.drain()
        self._stop.set()
