"""The engine as a front end's data plane sees it: a repository whose models are described, queued and counted over there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import mmap
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...errors import OverloadedError
from ..batching.statistics import ModelStatistics
from ..config import ServeConfig
from ..models.live_stats import model_live_stats
from ..models.models import Model, TensorModel
from ..models.notifications import Notifications
from ..models.repository_protocol import lacking
from ..models.response_cache import ResponseCache
from . import messages
from .connection import Connection, engine_gone, error_of
from .description import model_of
from .remote_model import RemoteQueue, RemoteStatistics

log = logging.getLogger("headrace.serving")

_STATISTICS_SECONDS = 10.0
_Answer = messages.Statistics | messages.History | messages.Settled
_Question = messages.AskStatistics | messages.AskHistory | messages.LoadModel | messages.UnloadModel


class _Known:
    """A model that the engine has described: its number, the requests that use it, and whether it is still in the catalog."""

    __slots__ = ("current", "model", "number", "uses")

    def __init__(self, number: int, model: Model) -> None:
        self.number = number
        self.model = model
        self.uses = 0
        self.current = True


class RemoteRepository:
    """The engine's models, as it last described them; while there is no engine, a repository that asks to come back soon. All
    is called on the event loop."""

    def __init__(self, config: ServeConfig, on_change: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self.notifications = Notifications(on_change)
        self._cache = ResponseCache(config.batching.response_cache_bytes) if config.batching.response_cache_bytes else None
        self._connection: Connection | None = None
        self._index: list[dict[str, str]] = []
        self._models: dict[str, dict[str, Model]] = {}
        self._known: dict[int, _Known] = {}
        self._described = self._loaded = self._serves = self._draining = False
        self._questions: dict[int, asyncio.Future[_Answer]] = {}
        self._next_question = itertools.count()

    def connect(self, connected: socket.socket, memory: mmap.mmap) -> None:
        """Talk to this engine from now on."""
        before = self._connection
        self._connection = Connection(connected, memory, on_message=self._on_message, on_end=self._on_end)
        if before is not None:
            before.channel.close()
        # Numbers are one engine's; the models stay known until this one describes its own, and reject requests until then.
        self._known = {}
        self._loaded = self._serves = False
        self.notifications.notify()

    @property
    def loaded(self) -> bool:
        """The engine has tried every model that it was to load at the start."""
        return self._loaded

    @property
    def ready(self) -> bool:
        """The engine has loaded, serves and does not hang, and this process is not shutting down."""
        alive = self._connection is not None and self._connection.alive
        return self._loaded and self._serves and alive and not self._draining

    def ready_models(self) -> list[Model]:
        """The models that serve, every version of them."""
        return [model for versions in self._models.values() for model in versions.values()]

    def get(self, name: str, version: str = "", *, early: bool = False) -> Model:
        """The model of that name, its newest version that serves unless one is named; the engine tells of none early. Raises
        NotFoundError, or OverloadedError while it is still loading or there is no engine."""
        if self._connection is None:
            raise engine_gone()
        versions = self._models.get(name, {})
        model = versions.get(version) if version else next(iter(versions.values()), None)
        if model is not None:
            return model
        if not self._described:
            raise OverloadedError(f"model '{name[:100]}' is still loading; try again soon", retry_after=5)
        raise lacking(name, version, versions, [entry for entry in self._index if entry["name"] == name])

    @contextlib.contextmanager
    def use(self, name: str, version: str = "") -> Iterator[Model]:
        """The model that `get` gives, which the engine does not close before the block ends."""
        model = self.get(name, version)
        used = [self._known[key] for key in (id(model), id(getattr(model, "target", None))) if key in self._known]
        for known in used:
            known.uses += 1
        try:
            yield model
        finally:
            for known in used:
                known.uses -= 1
                self._release(known)

    def versions(self, name: str) -> list[str]:
        """The versions of a model that serve, newest first."""
        self.get(name)
        return list(self._models[name])

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """The repository extension's list, as the engine last gave it."""
        return [entry for entry in self._index if entry["state"] == "READY"] if ready_only else self._index

    async def load_model(self, name: str, config: str | None = None) -> None:
        """See `ModelRepository.load_model`; returns once every front end serves it."""
        await self._control(partial(messages.LoadModel, name=name, config=config))

    async def unload_model(self, name: str, *, dependents: bool = False) -> None:
        """See `ModelRepository.unload_model`."""
        await self._control(partial(messages.UnloadModel, name=name, dependents=dependents))

    async def statistics(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models has counted. Raises OverloadedError when the engine does not answer."""
        return [counts.statistics if counts else ModelStatistics().snapshot() for counts in await self._counted(models)]

    async def live_stats(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models does right now, in the engine. Raises OverloadedError when the engine does not answer."""
        return [
            counts.live_stats if counts else model_live_stats(model)
            for model, counts in zip(models, await self._counted(models), strict=True)
        ]

    async def history(self) -> dict[str, Any]:
        """What every model did over the last hour and day. Raises OverloadedError when the engine does not answer."""
        answer = await self._ask_soon(messages.AskHistory)
        assert isinstance(answer, messages.History), "what answers the question"
        return answer.history

    async def _ask_soon(self, message: Callable[[int], _Question]) -> _Answer:
        try:
            async with asyncio.timeout(_STATISTICS_SECONDS):
                return await self._ask(message)
        except TimeoutError:
            raise OverloadedError("the engine does not answer; try again later") from None

    async def _counted(self, models: Sequence[Model]) -> list[messages.ModelCounts | None]:
        """What the engine has counted of each; None of one that was exchanged meanwhile."""
        answer = await self._ask_soon(messages.AskStatistics)
        assert isinstance(answer, messages.Statistics), "what answers the question"
        numbers = {key: known.number for key, known in self._known.items()}
        return [answer.counts.get(numbers.get(id(model), 0)) for model in models]  # numbers begin with 1

    def drain(self) -> None:
        """Report "not ready" from now on; what arrives is still answered."""
        self._draining = True
        self.notifications.notify()

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.channel.close()

    async def _control(self, command: Callable[[int], messages.LoadModel | messages.UnloadModel]) -> None:
        answer = await self._ask(command)
        if isinstance(answer, messages.Settled) and answer.status:
            raise error_of(answer)

    async def _ask(self, message: Callable[[int], _Question]) -> _Answer:
        if self._connection is None:
            raise engine_gone()
        question = next(self._next_question)
        answer = self._questions[question] = asyncio.get_running_loop().create_future()
        self._connection.channel.send(message(question))
        try:
            return await answer
        finally:
            self._questions.pop(question, None)

    def _on_message(self, message: messages.Message) -> None:
        match message:
            case messages.Catalog():
                self._update(message)
                self._send(messages.Seen(message.serial))
                self.notifications.notify()
            case messages.Statistics() | messages.History() | messages.Settled():
                if (answer := self._questions.get(message.question)) and not answer.done():
                    answer.set_result(message)
            case _:
                log.error("the engine sent a %s", type(message).__name__)

    def _update(self, catalog: messages.Catalog) -> None:
        connection = self._connection
        assert connection is not None, "catalogs come over the connection"
        before = {known.number: known.model for known in self._known.values()}
        now = {number: before[number] for number in catalog.numbers if number in before}
        # Tensor models come first, since the others refer to them.
        for described in sorted(catalog.models, key=lambda one: not isinstance(one, messages.TensorDescription)):
            number = described.number
            model = now[number] = model_of(
                described,
                now,
                config=self._config,
                statistics=RemoteStatistics(connection, number),
                queue=partial(RemoteQueue, connection, number),
                cache=self._cache,
            )
            self._known[id(model)] = _Known(number, model)
        models: dict[str, dict[str, Model]] = {}
        for model in map(now.__getitem__, catalog.numbers):
            models.setdefault(model.name, {})[model.version] = model
        self._models = models
        self._index = list(catalog.index)
        self._described = True
        self._loaded, self._serves = catalog.loaded, catalog.ready
        for known in [known for known in self._known.values() if known.number not in now]:
            known.current = False
            self._release(known)

    def _release(self, known: _Known) -> None:
        """Let the engine close a model that is neither current nor used; an earlier engine hears of none."""
        if known.current or known.uses or self._known.get(id(known.model)) is not known:
            return
        del self._known[id(known.model)]
        if isinstance(known.model, TensorModel) and known.model.cache is not None:
            known.model.cache.clear()
        self._send(messages.Released(known.number))

    def _send(self, message: messages.Message) -> None:
        if self._connection is not None:
            self._connection.channel.send(message)

    def _on_end(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._loaded = self._serves = False
            self._known = {}
            for answer in self._questions.values():
                if not answer.done():
                    answer.set_exception(engine_gone())
            self.notifications.notify()
