"""The engine's side of one front end: its requests go into the models' batchers, and what comes of them goes back."""

from __future__ import annotations

import logging
import mmap
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...errors import ExecutionError, HeadraceError, OverloadedError, RequestError
from ..batching.batcher import Batcher
from ..batching.collate import Placed
from ..batching.statistics import FAILURES
from ..batching.ticket import Rows, Ticket
from ..models.models import Model, TensorModel
from . import messages
from .arena import ALIGNMENT, BlockLayout
from .channel import Channel

log = logging.getLogger("headrace.serving")


class NumberedModel(NamedTuple):
    """A model under the number by which front ends call it; companions have no batcher and no layout, they are only counted. It
    is in use, by its `leases`, for as long as it has a number."""

    model: Model
    batcher: Batcher | None = None
    layout: BlockLayout | None = None


class _Job(NamedTuple):
    ticket: Ticket
    batcher: Batcher
    layout: BlockLayout
    offset: int


class EngineSession:
    """Serves one front end until it ends, and then gives up what it had asked for.

    `models` is looked up for every request, so that it may change. `held` are the numbers that the front end may still use, and
    `seen` is the last catalog it has acknowledged; `on_change` is called when either changes, and `control` for what clients
    ask of the repository. All is called on the event loop but `_answered`, which a batcher's thread may call.
    """

    def __init__(
        self,
        connected: socket.socket,
        memory: mmap.mmap,
        models: Mapping[int, NumberedModel],
        *,
        statistics: Callable[[], Mapping[int, messages.ModelCounts]],
        history: Callable[[], dict[str, Any]],
        control: Callable[[EngineSession, messages.LoadModel | messages.UnloadModel], None],
        on_change: Callable[[], None],
        on_end: Callable[[EngineSession], None],
    ) -> None:
        self.held: set[int] = set()
        self.seen = 0
        self._described: frozenset[int] = frozenset()
        self._control = control
        self._on_change = on_change
        self._memory = memory
        self._bytes: np.ndarray = np.frombuffer(memory, np.uint8)
        self._models = models
        self._statistics = statistics
        self._history = history
        self._jobs: dict[int, _Job] = {}
        self._on_end = on_end
        self.channel = Channel(connected, self._on_message, self._ended)

    def publish(self, catalog: messages.Catalog) -> None:
        """Send the front end what is served now, and the descriptions of those models that it had not yet."""
        self.held.update(catalog.numbers)
        fresh = tuple(model for model in catalog.models if model.number not in self._described)
        self._described = frozenset(catalog.numbers)
        self.channel.send(replace(catalog, models=fresh))

    def _on_message(self, message: messages.Message) -> None:
        match message:
            case messages.Admit():
                self._admit(message)
            case messages.Submit(number):
                if job := self._jobs.get(number):
                    rows = job.ticket.rows
                    placed = Placed(self._bytes, job.layout.input_offsets(job.offset, rows))
                    job.batcher.submit(job.ticket, job.layout.inputs(self._memory, job.offset, rows), placed)
            case messages.Cancel(number):
                if job := self._jobs.get(number):
                    job.ticket.future.cancel()
            case messages.Expire(number):
                if job := self._jobs.get(number):
                    job.batcher.expire(job.ticket)
                self.channel.send(messages.Alive())  # what runs is answered later; a front end asks whether anybody is here
            case messages.Rejected(number):
                if job := self._jobs.get(number):
                    job.batcher.reject(job.ticket, HeadraceError("the front end rejected the request"))
            case messages.Count(number, what, rows, ns):
                if numbered := self._models.get(number):
                    _count(numbered.model, what, rows, ns)
            case messages.AskStatistics(question):
                self.channel.send(messages.Statistics(question, self._statistics()))
            case messages.AskHistory(question):
                self.channel.send(messages.History(question, self._history()))
            case messages.Seen(serial):
                self.seen = serial
                self._on_change()
            case messages.Released(number):
                self.held.discard(number)
                self._on_change()
            case messages.LoadModel() | messages.UnloadModel():
                self._control(self, message)
            case _:
                log.error("a front end sent a %s", type(message).__name__)

    def _admit(self, asked: messages.Admit) -> None:
        try:
            numbered = self._models.get(asked.model)
            if numbered is None or numbered.batcher is None or numbered.layout is None:
                raise OverloadedError("the model was exchanged meanwhile; try again")
            end = asked.offset + numbered.layout.size(asked.rows, asked.best)
            if asked.offset % ALIGNMENT or end > len(self._memory) or asked.ticket in self._jobs:
                raise ExecutionError("the request did not reach the engine in one piece")
            ticket = numbered.batcher.admit(
                asked.rows,
                timeout=asked.timeout,
                priority=asked.priority,
                best=asked.best,
                wait=asked.wait,
                arrived=asked.arrived,
            )
        except RequestError as error:
            self._fail(asked.ticket, error)
            return
        self._jobs[asked.ticket] = _Job(ticket, numbered.batcher, numbered.layout, asked.offset)
        ticket.future.add_done_callback(partial(self._answered, asked.ticket))

    def _answered(self, number: int, future: Future[Rows]) -> None:
        job = self._jobs.pop(number)
        if future.cancelled():
            self._fail(number, OverloadedError("the request was given up"))
        elif error := future.exception():
            self._fail(number, error)
        else:
            ticket = job.ticket
            if job.layout.put_outputs(self._memory, job.offset, future.result(), ticket.rows, ticket.best):
                self.channel.send(messages.Done(number, ticket.began, ticket.ended, ticket.batch))
            else:
                self._fail(number, ExecutionError("the model's outputs are not what its signature says"))

    def _fail(self, number: int, error: BaseException) -> None:
        if isinstance(error, RequestError):
            retry_after = error.retry_after if isinstance(error, OverloadedError) else 0
            self.channel.send(messages.Failed(number, error.status, retry_after, str(error)))
        else:
            self.channel.send(
                messages.Failed(number, ExecutionError.status, 0, "the request failed; the server's log says why")
            )

    def _ended(self) -> None:
        for job in list(self._jobs.values()):
            job.ticket.future.cancel()  # what runs already runs on, and its answer goes nowhere
        self._on_end(self)


def _count(model: Model, what: int, rows: int, ns: int) -> None:
    statistics = model.statistics
    match what:
        case messages.Counted.FAILED if rows < len(FAILURES):
            statistics.failed(ns, FAILURES[rows])
        case messages.Counted.COMPOSED:
            statistics.composed(rows, ns)
        case messages.Counted.CACHED:
            statistics.cached(ns)
        case messages.Counted.MISSED:
            statistics.missed(ns)
        case messages.Counted.DECODED if isinstance(model, TensorModel):
            model.decoding.composed(rows, ns)
        case _:
            log.error("a front end counts what nobody knows: %d", what)
