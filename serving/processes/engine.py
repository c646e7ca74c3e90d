"""The engine process: the models, their sessions and batchers, and the metrics; started by the supervisor."""

from __future__ import annotations

import asyncio
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
                self._report()
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
        desk.channel.send(Catalogue(json.dumps(self._catalogue())))

    def _announce(self) -> None:
        """Tell every front end what is served now."""
        text = json.dumps(self._catalogue())
        for desk in self._desks:
            desk.channel.send(Catalogue(text))

    def _catalogue(self) -> dict[str, Any]:
        models, refused = [], {}
        for model in self._repository.ready_models():
            try:
                models.append(describe(model, self._number))
            except ArtifactError as error:
                refused[model.name, model.version] = str(error)
        index = [
            entry | ({"state": "UNAVAILABLE", "reason": refused[key]} if key in refused else {})
            for entry in self._repository.index()
            for key in [(entry["name"], entry["version"])]
        ]
        return {"ready": self._repository.ready and bool(models), "index": index, "models": models}

    def _number(self, model: Model) -> int:
        """The number by which front ends call a model; ArtifactError when its requests cannot be passed between processes."""
        number = next((number for number, served in self._served.items() if served.model is model), None)
        if number is not None:
            return number
        if isinstance(model, TensorModel):
            assert isinstance(model.batcher, Batcher), "the engine's models run here"
            layout, most = BlockLayout(model.signature), model.batcher.table.largest
            if layout.size(most) > self._config.ring_bytes:
                raise ArtifactError(
                    f"a request of {most} rows takes {layout.size(most):,} bytes of shared memory, of which each front end "
                    f"has {self._config.ring_bytes:,}; allow more with --ring-mib"
                )
            served = Served(model, model.batcher, layout)
        else:
            served = Served(model)
        number = max(self._served, default=0) + 1
        self._served[number] = served
        return number

    def _statistics(self) -> str:
        return json.dumps({number: served.model.statistics.snapshot() for number, served in self._served.items()})

    def _report(self, reasons: str = "") -> None:
        """Tell the supervisor how loading ended, in few enough words for one message."""
        catalogue = self._catalogue()
        names = list(dict.fromkeys(model["name"] for model in catalogue["models"]))
        if len(names) > _NAMED:
            names[_NAMED:] = [f"{len(names) - _NAMED} more"]
        reasons = reasons or "\n".join(f"  {entry['name']}: {entry['reason']}" for entry in catalogue["index"])
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
