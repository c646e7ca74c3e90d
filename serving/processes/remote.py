"""The engine as a front end's data plane sees it: a repository whose models are described, queued and counted over there."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import mmap
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from ...errors import InputError, NotFoundError, OverloadedError, PenstockError
from ...specs import Signature
from ..batcher import Ticket
from ..config import ServeConfig
from ..latency import LatencyTable
from ..models import Model
from ..statistics import ModelStatistics
from .connection import Connection, RemoteTicket, engine_gone
from .description import model_of
from .ring import BlockLayout
from .wire import AskStatistics, Catalogue, Count, Counted, Message, Statistics

__all__ = ["RemoteQueue", "RemoteRepository", "RemoteStatistics"]

log = logging.getLogger("penstock.serving")

_STATISTICS_SECONDS = 10.0


class RemoteQueue:
    """One model's queue in the engine, as a `RequestQueue`."""

    def __init__(self, connection: Connection, number: int, name: str, signature: Signature, table: LatencyTable) -> None:
        self.table = table
        self._connection = connection
        self._number = number
        self._name = name
        self._layout = BlockLayout(signature)

    @property
    def depth(self) -> int:
        """This front end's requests in the engine, those that run included; of the others' it knows nothing."""
        return self._connection.waiting

    def admit(self, rows: int, *, timeout: float, priority: int = 0) -> Ticket:
        """See `RequestQueue.admit`; raises OverloadedError when the engine is gone or the shared memory is full."""
        if not 1 <= rows <= self.table.largest:
            raise InputError(f"a request may hold 1 to {self.table.largest} rows for model '{self._name}', got {rows}")
        return self._connection.admit(self._number, self._layout, rows, timeout, priority)

    def slot(self, ticket: Ticket) -> AbstractContextManager[list[np.ndarray] | None]:
        """The shared memory itself."""
        assert isinstance(ticket, RemoteTicket)
        return self._connection.slot(ticket)

    def submit(self, ticket: Ticket, inputs: list[np.ndarray]) -> None:
        """See `RequestQueue.submit`."""
        assert isinstance(ticket, RemoteTicket)
        self._connection.submit(ticket, inputs)

    def expire(self, ticket: Ticket) -> None:
        """See `RequestQueue.expire`."""
        assert isinstance(ticket, RemoteTicket)
        self._connection.expire(ticket)

    def refuse(self, ticket: Ticket, error: PenstockError) -> None:
        """See `RequestQueue.refuse`."""
        assert isinstance(ticket, RemoteTicket)
        self._connection.refuse(ticket, error)

    def close(self, *, drain: bool = True) -> None:
        """Nothing: the queue is the engine's to close."""


class RemoteStatistics(ModelStatistics):
    """Counts in the engine, where all front ends' counts add up; nothing is kept here."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__()
        self._connection = connection
        self._number = number

    def composed(self, rows: int, total_ns: int) -> None:
        """See `ModelStatistics.composed`."""
        self._connection.channel.send(Count(self._number, Counted.COMPOSED, rows, total_ns))

    def failed(self, total_ns: int) -> None:
        """See `ModelStatistics.failed`."""
        self._connection.channel.send(Count(self._number, Counted.FAILED, 0, total_ns))


class RemoteRepository:
    """The engine's models, as it last described them; while there is no engine, a repository that asks to come back soon."""

    def __init__(self, config: ServeConfig, on_change: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self._on_change = on_change
        self._connection: Connection | None = None
        self._index: list[dict[str, str]] = []
        self._models: dict[str, dict[str, Model]] = {}
        self._numbers: dict[int, Model] = {}
        self._loaded = False
        self._draining = False
        self._questions: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_question = itertools.count()

    def connect(self, connected: socket.socket, memory: mmap.mmap) -> None:
        """Talk to this engine from now on; to be called on the event loop."""
        before = self._connection
        self._connection = Connection(connected, memory, on_message=self._on_message, on_end=self._on_end)
        # Numbers are one engine's; the models stay known until this one describes its own, and refuse until then.
        self._numbers = {}
        self._loaded = False
        if before is not None:
            before.channel.close()

    @property
    def ready(self) -> bool:
        """The engine has loaded and serves something, and this process is not shutting down."""
        return self._loaded and not self._draining

    def ready_models(self) -> list[Model]:
        """The models that serve, every version of them."""
        return [model for versions in self._models.values() for model in versions.values()]

    def get(self, name: str, version: str = "") -> Model:
        """The model of that name. Raises NotFoundError, or OverloadedError while it is still loading or the engine is gone."""
        if self._connection is None:
            raise engine_gone()
        versions = self._models.get(name, {})
        model = versions.get(version) if version else next(iter(versions.values()), None)
        if model is not None:
            return model
        own = [entry for entry in self._index if entry["name"] == name]
        if not own and self._index:
            raise NotFoundError(f"unknown model '{name[:100]}'; POST /v2/repository/index lists what is served")
        if not own or any(entry["state"] == "LOADING" for entry in own):
            raise OverloadedError(f"model '{name[:100]}' is still loading; try again soon", retry_after=5)
        if not versions:
            reasons = "; ".join(entry["reason"] for entry in own if entry["reason"])
            raise NotFoundError(f"model '{name}' is not served: {reasons}")
        word = "version" if len(versions) == 1 else "versions"
        raise NotFoundError(f"model '{name}' has no version '{version[:20]}'; {word} {', '.join(versions)} is served")

    def versions(self, name: str) -> list[str]:
        """The versions of a model that serve."""
        self.get(name)
        return list(self._models[name])

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """The repository extension's list, as the engine last gave it."""
        return [entry for entry in self._index if entry["state"] == "READY"] if ready_only else self._index

    async def statistics(self, models: Sequence[Model]) -> list[dict[str, Any]]:
        """What each of the models has counted. Raises OverloadedError when the engine does not say."""
        connection = self._connection
        if connection is None:
            raise engine_gone()
        question = next(self._next_question)
        answer = self._questions[question] = asyncio.get_running_loop().create_future()
        connection.channel.send(AskStatistics(question))
        try:
            async with asyncio.timeout(_STATISTICS_SECONDS):
                counted = await answer
        except TimeoutError:
            raise OverloadedError("the engine does not answer; try again later") from None
        finally:
            self._questions.pop(question, None)
        numbers = {id(model): number for number, model in self._numbers.items()}
        return [counted.get(str(numbers.get(id(model))), ModelStatistics().snapshot()) for model in models]

    def drain(self) -> None:
        """Say "not ready" from now on; what arrives is still answered."""
        self._draining = True

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.channel.close()

    def _on_message(self, message: Message) -> None:
        match message:
            case Catalogue(text):
                self._update(json.loads(text))
                self._on_change()
            case Statistics(question, text):
                if (answer := self._questions.get(question)) and not answer.done():
                    answer.set_result(json.loads(text))
            case _:
                log.error("the engine sent a %s", type(message).__name__)

    def _update(self, catalogue: dict[str, Any]) -> None:
        connection = self._connection
        if connection is None:
            return
        numbers: dict[int, Model] = {}
        models: dict[str, dict[str, Model]] = {}
        # Tensor models come first, since the others refer to them.
        for said in sorted(catalogue["models"], key=lambda said: said["kind"] != "tensor"):
            number, name, version = said["number"], said["name"], said["version"]
            model = self._numbers.get(number) or model_of(
                said,
                self._numbers | numbers,
                config=self._config,
                statistics=RemoteStatistics(connection, number),
                queue=partial(RemoteQueue, connection, number),
            )
            models.setdefault(name, {})[version] = numbers[number] = model
        self._models = models
        self._numbers = numbers
        self._index = catalogue["index"]
        self._loaded = catalogue["ready"]

    def _on_end(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._loaded = False
            self._numbers = {}
            for answer in self._questions.values():
                if not answer.done():
                    answer.set_exception(engine_gone())
            self._on_change()
