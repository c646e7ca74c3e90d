"""The engine process: the models, their sessions and batchers, and the metrics; started by the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import mmap
import socket
import sys
from typing import Any

import uvloop

from ...errors import ArtifactError, PenstockError
from ..announce import say
from ..batcher import Batcher
from ..config import ServeConfig
from ..endpoints import Endpoints
from ..metrics import metrics_app
from ..models import Model, TensorModel
from ..repository import ModelRepository
from .child import begin, config_from_json, orphaned
from .control import ControlLink
from .description import describe
from .desk import Desk, Served
from .ring import BlockLayout, map_memory
from .wire import Catalogue

__all__ = ["Engine"]

log = logging.getLogger("penstock.serving")

_NAMED, _REASON_LENGTH = 100, 8000


class Engine:
    """Owns the repository and serves every front end that the supervisor connects."""

    def __init__(self, config: ServeConfig, control: ControlLink, metrics: socket.socket | None) -> None:
        self._config = config
        self._control = control
        self._metrics = metrics
        self._repository = ModelRepository(config)
        self._stop = asyncio.Event()
        self._desks: set[Desk] = set()
        # A version keeps its number for as long as it is served, so that requests on their way find it.
        self._served: dict[int, Served] = {}

    async def run(self) -> None:
        """Load, serve until the supervisor says stop, answer what was admitted, end."""
        loop = asyncio.get_running_loop()
        self._control.listen(self._on_command, on_end=orphaned)
        endpoints = Endpoints(self._config)
        if self._metrics is not None:
            endpoints.add_http(metrics_app(self._repository), self._metrics)
        await endpoints.start()

        def progress(line: str) -> None:
            say(line)
            loop.call_soon_threadsafe(self._announce)

        try:
            try:
                await loop.run_in_executor(None, self._repository.load, progress)
            except PenstockError as error:
                self._report(str(error))
            else:
                self._report("\n".join(f"  {entry.name}: {entry.reason}" for entry in self._repository.entries))
            self._announce()
            await self._stop.wait()
        finally:
            self._repository.drain()
            await endpoints.stop()
            await loop.run_in_executor(None, self._repository.close)
            for desk in list(self._desks):
                desk.channel.close()

    def _on_command(self, command: dict[str, Any], descriptors: list[int]) -> None:
        match command["do"]:
            case "connect":
                connected, memory = descriptors
                self._connect(socket.socket(fileno=connected), map_memory(memory))
            case "stop":
                self._repository.drain()
                self._stop.set()

    def _connect(self, connected: socket.socket, memory: mmap.mmap) -> None:
        desk = Desk(connected, memory, self._served, statistics=self._statistics, on_end=self._desks.discard)
        self._desks.add(desk)
        desk.channel.send(Catalogue(self._catalogue()))

    def _announce(self) -> None:
        """Tell every front end what is served now."""
        text = self._catalogue()
        for desk in self._desks:
            desk.channel.send(Catalogue(text))

    def _catalogue(self) -> str:
        models = [{"number": self._number(model), **describe(model)} for model in self._repository.ready_models()]
        return json.dumps({"ready": self._repository.ready, "index": self._repository.index(), "models": models})

    def _number(self, model: Model) -> int:
        number = next((number for number, served in self._served.items() if served.model is model), None)
        if number is None:
            number = max(self._served, default=0) + 1
            self._served[number] = Served(model)
            if isinstance(model, TensorModel) and isinstance(model.batcher, Batcher):
                with contextlib.suppress(ArtifactError):  # front ends find out for themselves, and say why it is not served
                    self._served[number] = Served(model, model.batcher, BlockLayout(model.signature))
        return number

    def _statistics(self) -> str:
        return json.dumps({number: served.model.statistics.snapshot() for number, served in self._served.items()})

    def _report(self, reasons: str) -> None:
        """Tell the supervisor how loading ended, in few enough words for one message."""
        names = list(dict.fromkeys(model.name for model in self._repository.ready_models()))
        if len(names) > _NAMED:
            names[_NAMED:] = [f"{len(names) - _NAMED} more"]
        self._control.send({"event": "loaded", "models": names, "reasons": reasons[:_REASON_LENGTH]})


def main() -> None:
    """What the supervisor starts as `python -m penstock.serving.processes.engine`."""
    control, start, descriptors = begin(sys.argv)
    metrics = socket.socket(fileno=descriptors[0]) if descriptors else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def run() -> None:
            await Engine(config_from_json(start["config"]), control, metrics).run()

        runner.run(run())


if __name__ == "__main__":
    main()
