"""A front-end process: takes requests, decodes images into memory shared with the engine; started by the supervisor."""

from __future__ import annotations

import asyncio
import logging
import socket

from ...runtime.base.anonymous_memory import map_memory
from ..config import ServeConfig
from ..http.app import create_app
from ..images.decode_pool import DecodePool
from ..models.kept_routes import KeptRoutes
from ..observe.logs import LogSettings
from ..observe.telemetry import Telemetry
from ..plane.data_plane import DataPlane
from ..plane.settings import Settings
from .child import orphaned, run
from .control import ControlLink
from .endpoints import Endpoints, listen
from .messages import Connect, Message, Serving, StartFrontEnd, Stop
from .remote import RemoteRepository

log = logging.getLogger("headrace.serving")


class FrontEnd:
    """One of several that share the ports. It serves whatever engine the supervisor connects it to."""

    def __init__(
        self, start: StartFrontEnd, control: ControlLink, log_settings: LogSettings, kept: KeptRoutes | None = None
    ) -> None:
        self._control = control
        self._kept = kept
        self._joins = start.joins
        self._ports = start.ports
        self._config = _share_of(start.config)
        self._repository = RemoteRepository(self._config, self._on_change)
        self._decoder = DecodePool(self._config.images.decoders, limit=start.config.max_queue)
        self._plane = DataPlane(self._repository, self._decoder, self._config, settings=Settings(log_settings))
        self._stop, self._loaded = asyncio.Event(), asyncio.Event()
        self._listening = self._serving = False

    async def run(self) -> None:
        """Serve until the supervisor says stop, answer what was accepted, end."""
        self._control.listen(self._on_command, on_end=orphaned)
        if self._joins:
            await self._loaded.wait()
        telemetry = Telemetry(self._config.observe.trace_otlp) if self._config.observe.trace_otlp else None
        endpoints, host = Endpoints(self._config, telemetry=telemetry), self._config.addresses.host
        bound = listen(host, self._ports["http"], "http", shared=True)
        kept = self._kept
        app, log = create_app(self._plane, kept), self._config.observe.access_log
        endpoints.add_http(app, bound, log=log, kept=kept.paths if kept is not None else None)
        if "grpc" in self._ports:
            endpoints.add_grpc(self._plane, host, self._ports["grpc"])
        await endpoints.start()
        self._listening = True
        self._on_change()
        await self._stop.wait()
        self._repository.drain()
        await endpoints.stop()
        self._repository.close()
        self._decoder.close()
        if telemetry is not None:
            await asyncio.get_running_loop().run_in_executor(None, telemetry.close)

    def _on_command(self, command: Message, descriptors: list[int]) -> None:
        match command:
            case Connect():
                connected, memory = descriptors
                self._repository.connect(socket.socket(fileno=connected), map_memory(memory))
            case Stop():
                self._repository.drain()
                self._stop.set()
                self._loaded.set()  # or it would wait for an engine that ends as well
            case _:
                log.error("the supervisor sent a %s", type(command).__name__)

    def _on_change(self) -> None:
        """Report to the supervisor, once, that this front end answers for what the engine has loaded."""
        if not self._repository.loaded:
            return
        self._loaded.set()
        if self._listening and not self._serving:
            self._serving = True
            self._control.send(Serving())


def _share_of(config: ServeConfig) -> ServeConfig:
    """The configuration of one of the front ends: what the machine has only once is divided among them."""
    count = max(1, config.front_ends)
    return config.changed(
        decode_threads=config.decoders_each,
        response_cache_bytes=config.batching.response_cache_bytes // count,
        max_inflight_bytes=max(config.limits.largest_bytes, config.limits.max_inflight_bytes // count),
    )


async def _serve(control: ControlLink, start: StartFrontEnd, routes: list[int], log_settings: LogSettings) -> None:
    kept = KeptRoutes.from_file(routes[0]) if routes else None
    await FrontEnd(start, control, log_settings, kept).run()


if __name__ == "__main__":
    run(StartFrontEnd, _serve)
