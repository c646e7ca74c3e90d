"""What stands in a front end for the parts of a model that are in the engine: its queue and its statistics."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from ...errors import HeadraceError, InputError
from ...specs import Signature
from ..batching.latency_table import LatencyTable
from ..batching.statistics import FAILURES, ModelStatistics
from ..batching.ticket import Ticket
from .arena import BlockLayout
from .connection import Connection, RemoteTicket
from .messages import Count, Counted


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

    def admit(self, rows: int, *, timeout: float, priority: int = 0, best: int = 0, wait: float = 0.0) -> Ticket:
        """See `RequestQueue.admit`; raises OverloadedError when the engine is gone or the shared memory is full."""
        if not 1 <= rows <= self.table.largest:
            raise InputError(f"a request may hold 1 to {self.table.largest} rows for model '{self._name}', got {rows}")
        return self._connection.admit(self._number, self._layout, rows, timeout, priority, best, wait)

    def slot(self, ticket: Ticket) -> AbstractContextManager[list[np.ndarray] | None]:
        """The shared memory itself."""
        assert isinstance(ticket, RemoteTicket)
        return self._connection.slot(ticket)

    def submit(self, ticket: Ticket, inputs: list[np.ndarray]) -> None:
        assert isinstance(ticket, RemoteTicket)
        self._connection.submit(ticket, inputs)

    def expire(self, ticket: Ticket) -> None:
        assert isinstance(ticket, RemoteTicket)
        self._connection.expire(ticket)

    def reject(self, ticket: Ticket, error: HeadraceError) -> None:
        assert isinstance(ticket, RemoteTicket)
        self._connection.reject(ticket, error)

    def close(self, *, drain: bool = True) -> None:
        """Nothing: the queue is the engine's to close."""


class RemoteStatistics(ModelStatistics):
    """Counts in the engine, where all front ends' counts add up; nothing is kept here."""

    def __init__(self, connection: Connection, number: int) -> None:
        super().__init__()
        self._connection = connection
        self._number = number

    def decoded(self) -> ModelStatistics:
        """For the images that are decoded for this model, which are counted beside it."""
        return _RemoteDecoding(self._connection, self._number)

    def composed(self, rows: int, total_ns: int) -> None:
        self._count(Counted.COMPOSED, total_ns, rows)

    def cached(self, lookup_ns: int) -> None:
        self._count(Counted.CACHED, lookup_ns)

    def missed(self, lookup_ns: int) -> None:
        self._count(Counted.MISSED, lookup_ns)

    def failed(self, total_ns: int, reason: str) -> None:
        self._count(Counted.FAILED, total_ns, FAILURES.index(reason))

    def _count(self, what: int, ns: int, rows: int = 0) -> None:
        self._connection.channel.send(Count(self._number, what, rows, ns))


class _RemoteDecoding(RemoteStatistics):
    def composed(self, rows: int, total_ns: int) -> None:
        self._count(Counted.DECODED, total_ns, rows)
