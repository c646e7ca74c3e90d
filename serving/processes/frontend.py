"""A front-end process: takes requests, decodes images into memory shared with the engine; started by the supervisor."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import sys
from typing import Any

import uvloop

from ..config import ServeConfig
from ..dataplane import DataPlane
from ..decode import DecodePool
from ..endpoints import Endpoints
from ..http import create_app
from .child import begin, config_from_json, orphaned
from .control import ControlLink
from .remote import RemoteRepository
from .ring import map_memory

__all__ = ["FrontEnd"]


class FrontEnd:
    """One of several that share the ports. It serves whatever engine the supervisor connects it to."""

    def __init__(self, config: ServeConfig, control: ControlLink, http: socket.socket, grpc_port: int | None) -> None:
        self._control = control
        self._http = http
        self._grpc_port = grpc_port
        self._config = _share_of(config)
        self._repository = RemoteRepository(self._config, self._on_change)
        self._decoder = DecodePool(self._config.decoders, limit=config.max_queue)
        self._plane = DataPlane(self._repository, self._decoder, self._config)
        self._stop = asyncio.Event()
        self._was_ready = False

    async def run(self) -> None:
        """Serve until the supervisor says stop, answer what was accepted, end."""
        endpoints = Endpoints(self._config)
        endpoints.add_http(create_app(self._plane), self._http)
        if self._grpc_port is not None:
            endpoints.add_grpc(self._plane, self._config.host, self._grpc_port, shared=True)
        await endpoints.start()
        self._control.listen(self._on_command, on_end=orphaned)
        await self._stop.wait()
        self._repository.drain()
        await endpoints.stop()
        self._repository.close()
        self._decoder.close()

    def _on_command(self, command: dict[str, Any], descriptors: list[int]) -> None:
        match command["do"]:
            case "connect":
                connected, memory = descriptors
                self._repository.connect(socket.socket(fileno=connected), map_memory(memory))
            case "stop":
                self._repository.drain()
                self._stop.set()

    def _on_change(self) -> None:
        """Tell the supervisor whether this front end serves."""
        if self._repository.ready != self._was_ready:
            self._was_ready = self._repository.ready
            self._control.send({"event": "ready", "ready": self._was_ready})


def _share_of(config: ServeConfig) -> ServeConfig:
    """The configuration of one of the front ends: what the machine has only once is divided among them."""
    count = max(1, config.front_ends)
    return dataclasses.replace(
        config,
        decode_threads=max(1, config.decoders // count),
        max_inflight_bytes=max(config.max_body_bytes, config.max_inflight_bytes // count),
    )


def main() -> None:
    """What the supervisor starts as `python -m penstock.serving.processes.frontend`."""
    control, start, descriptors = begin(sys.argv)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def run() -> None:
            http = socket.socket(fileno=descriptors[0])
            await FrontEnd(config_from_json(start["config"]), control, http, start["grpc_port"]).run()

        runner.run(run())


if __name__ == "__main__":
    main()
