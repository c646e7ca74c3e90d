"""The engine process: the models, their sessions and batchers, and the metrics; started by the supervisor."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import mmap
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict

from ...errors import ArtifactError, ExecutionError, HeadraceError, OverloadedError, RequestError
from ...runtime.base.anonymous_memory import map_memory, write_memory
from ..batching.batcher import Batcher
from ..config import ServeConfig
from ..models.live_stats import model_live_stats
from ..models.models import Model, TensorModel
from ..models.repository import ModelRepository
from ..models.snapshots import Standing
from ..observe.logs import LogSettings
from ..observe.metrics import metrics_app
from ..ready_file import report
from . import messages
from .arena import BlockLayout
from .child import beat, orphaned, run
from .control import ControlLink
from .description import describe
from .endpoints import Endpoints
from .engine_session import EngineSession, NumberedModel

log = logging.getLogger("headrace.serving")

_NAMED, _FAILURE_LENGTH = 100, 8000
_SEEN_SECONDS = 5.0
# Of a loop's time that announcements may take where changes follow each other, as while hundreds of models are loaded.
_ANNOUNCING = 0.2
_AGAIN_SECONDS = 0.5


class Engine:
    """Owns the repository and serves every front end that the supervisor connects. `restored` is what the engine before it
    handed on."""

    def __init__(
        self,
        config: ServeConfig,
        control: ControlLink,
        metrics: socket.socket | None,
        restored: Mapping[str, Standing] | None = None,
    ) -> None:
        self._config = config
        self._control = control
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._repository = ModelRepository(config, self._on_change, restored=restored)
        self._stop = asyncio.Event()
        self._loaded = False
        self._sessions: set[EngineSession] = set()
        self._serial = 0
        # A version keeps its number until no front end can have a request to it any more, and stays open as long.
        self._numbered: dict[int, NumberedModel] = {}
        self._numbers = itertools.count(1)
        self._number_of: dict[int, int] = {}  # by the identity of the model
        self._current: frozenset[int] = frozenset()
        self._announcing: asyncio.TimerHandle | None = None
        self._rested = 0.0  # when the next announcement may be
        self._seen_by_all = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Load, serve until the supervisor says stop, answer what was admitted, end."""
        self._control.listen(self._on_command, on_end=orphaned)
        endpoints = Endpoints(self._config)
        if self._metrics is not None:
            endpoints.add_http(metrics_app(self._repository), self._metrics)
        await endpoints.start()
        beating = asyncio.create_task(beat(self._beat))
        try:
            failure = ""
            try:
                await self._loop.run_in_executor(None, self._repository.load, report)
            except HeadraceError as error:
                failure = str(error)
            self._loaded = True
            self._report(failure)
            self._announce()
            await self._stop.wait()
        finally:
            self._repository.drain()
            await endpoints.stop()
            beating.cancel()
            for session in list(self._sessions):
                session.channel.close()
            await self._loop.run_in_executor(None, self._repository.close)

    def _beat(self) -> None:
        for session in self._sessions:
            session.channel.send(messages.Alive())

    def _on_command(self, command: messages.Message, descriptors: list[int]) -> None:
        match command:
            case messages.Connect():
                connected, memory = descriptors
                self._connect(socket.socket(fileno=connected), map_memory(memory))
            case messages.Stop():
                self._repository.drain()
                self._stop.set()
            case _:
                log.error("the supervisor sent a %s", type(command).__name__)

    def _connect(self, connected: socket.socket, memory: mmap.mmap) -> None:
        session = EngineSession(
            connected,
            memory,
            self._numbered,
            statistics=self._statistics,
            history=self._repository.past.to_json,
            control=self._on_control,
            on_change=self._tidy,
            on_end=self._leave,
        )
        self._sessions.add(session)
        self._announce()

    def _leave(self, session: EngineSession) -> None:
        self._sessions.discard(session)
        self._tidy()

    def _on_change(self) -> None:
        """What serves has changed; called in any thread."""
        self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        """Announce it, together with what else changes until the loop has rested from the last announcement."""
        self._seen_by_all.clear()
        if self._announcing is None:
            self._announcing = self._loop.call_at(self._rested, self._announce)

    def _announce(self) -> None:
        """Send every front end what is served now."""
        if self._announcing is not None:
            self._announcing.cancel()
            self._announcing = None
        begin = time.monotonic()
        self._serial += 1
        self._seen_by_all.clear()
        catalog = self._catalog()
        self._current = frozenset(catalog.numbers)
        # What comes back has another number: front ends may have released this one.
        self._number_of = {key: number for key, number in self._number_of.items() if number in self._current}
        for session in self._sessions:
            session.publish(catalog)
        self._tidy()
        self._rested = self._loop.time() + (time.monotonic() - begin) * (1 / _ANNOUNCING - 1)

    def _tidy(self) -> None:
        """Let go of the versions that nobody leases any more, and notice when every front end has seen the last catalog."""
        used = {*self._current, *(number for session in self._sessions for number in session.held)}
        for number in self._numbered.keys() - used:
            model = self._numbered.pop(number).model
            model.leases.release()
            if self._number_of.get(id(model)) == number:
                del self._number_of[id(model)]
        if self._announcing is None and all(session.seen == self._serial for session in self._sessions):
            self._seen_by_all.set()

    def _catalog(self) -> messages.Catalog:
        models: list[messages.Description] = []
        rejected = {}
        for model in self._repository.ready_models():
            try:
                models.append(describe(model, self._number))
            except ArtifactError as error:
                rejected[model.name, model.version] = str(error)
        index = (
            entry | ({"state": "UNAVAILABLE", "reason": rejected[key]} if key in rejected else {})
            for entry in self._repository.index()
            for key in [(entry["name"], entry["version"])]
        )
        ready = self._repository.ready and bool(models or not rejected)
        return messages.Catalog(
            serial=self._serial,
            loaded=self._loaded,
            ready=ready,
            index=tuple(index),
            numbers=tuple(model.number for model in models),
            models=tuple(models),
        )

    def _number(self, model: Model) -> int:
        """The number by which front ends call a model; ArtifactError when its requests cannot be passed between processes."""
        if (number := self._number_of.get(id(model))) is not None:
            return number
        if isinstance(model, TensorModel):
            assert isinstance(model.batcher, Batcher), "the engine's models run here"
            layout, most = BlockLayout(model.signature), model.batcher.table.largest
            if layout.size(most) > self._config.processes.ring_bytes:
                raise ArtifactError(
                    f"a request of {most} rows takes {layout.size(most):,} bytes of shared memory, of which each front end "
                    f"has {self._config.processes.ring_bytes:,}; allow more with --ring-mib"
                )
            numbered = NumberedModel(model, model.batcher, layout)
        else:
            numbered = NumberedModel(model)
        if not model.leases.acquire():  # it was exchanged a moment ago, of which the next announcement tells
            raise ArtifactError("it is being exchanged for another version")
        number = self._number_of[id(model)] = next(self._numbers)
        self._numbered[number] = numbered
        return number

    def _statistics(self) -> dict[int, messages.ModelCounts]:
        return {
            number: messages.ModelCounts(numbered.model.statistics.snapshot(), model_live_stats(numbered.model))
            for number, numbered in self._numbered.items()
        }

    def _on_control(self, session: EngineSession, asked: messages.LoadModel | messages.UnloadModel) -> None:
        task = asyncio.ensure_future(self._settle(session, asked))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, session: EngineSession, asked: messages.LoadModel | messages.UnloadModel) -> None:
        """Load or unload, and answer once requests find it so at every front end."""
        try:
            if isinstance(asked, messages.LoadModel):
                await self._repository.load_model(asked.name, asked.config)
            else:
                await self._repository.unload_model(asked.name, dependents=asked.dependents)
            self._hand_on()
            async with asyncio.timeout(_SEEN_SECONDS):
                await self._seen_by_all.wait()
        except TimeoutError:
            log.warning("a front end has not answered for %g s", _SEEN_SECONDS)
        except RequestError as error:
            retry_after = error.retry_after if isinstance(error, OverloadedError) else 0
            session.channel.send(messages.Settled(asked.question, error.status, retry_after, str(error)))
            return
        except Exception as error:  # whatever it was, the client is not left waiting
            log.error("control of model %s failed", asked.name, exc_info=error)
            text = "internal error; the server's log says more"
            session.channel.send(messages.Settled(asked.question, ExecutionError.status, 0, text))
            return
        session.channel.send(messages.Settled(asked.question, 0, 0, ""))

    def _hand_on(self) -> None:
        """Give the supervisor what serves by clients' calls, which the engine after this one is to serve."""
        standing = {name: asdict(one) for name, one in self._repository.standing().items()}
        try:
            descriptor = write_memory(json.dumps(standing).encode())
            try:
                self._control.send(messages.Controlled(), [descriptor])
            finally:
                os.close(descriptor)
        except OSError:  # no descriptor or no room is left for now
            self._loop.call_later(_AGAIN_SECONDS, self._hand_on)

    def _report(self, failure: str) -> None:
        """Report to the supervisor how loading ended, in few enough words for one message."""
        catalog = self._catalog()
        names = list(dict.fromkeys(model.name for model in catalog.models))
        if len(names) > _NAMED:
            names[_NAMED:] = [f"{len(names) - _NAMED} more"]
        if not failure and self._repository.ready_models() and not catalog.models:
            reasons = "\n".join(f"  {entry['name']}: {entry['reason']}" for entry in catalog.index)
            failure = f"none of the models in {self._config.models} can be served:\n{reasons}"
        self._control.send(messages.Loaded(tuple(names), failure[:_FAILURE_LENGTH]))


async def _serve(control: ControlLink, start: messages.StartEngine, descriptors: list[int], _: LogSettings) -> None:
    restored = None
    if start.follows:
        with map_memory(descriptors.pop()) as memory:
            restored = {name: Standing(**one) for name, one in json.loads(memory[:]).items()}
    await Engine(start.config, control, socket.socket(fileno=descriptors[0]) if descriptors else None, restored).run()


if __name__ == "__main__":
    run(messages.StartEngine, _serve)
