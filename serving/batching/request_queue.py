"""What the data plane needs of a batcher, which may run in this process or behind another one's socket."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from ...errors import HeadraceError
from .latency_table import LatencyTable
from .ticket import Ticket


class RequestQueue(Protocol):
    """One model's queue: `Batcher`, whose methods say what they do, or a front end's view of the engine's. Any thread may call.

    A ticket's future resolves to the outputs' rows, or what is best in them, or to a RequestError; a rejection may also come
    that way, after `admit` has returned, since a front end does not wait for the engine's word before it decodes.
    """

    @property
    def table(self) -> LatencyTable: ...
    @property
    def depth(self) -> int: ...
    def admit(self, rows: int, *, timeout: float, priority: int = 0, best: int = 0, wait: float = 0.0) -> Ticket: ...
    def slot(self, ticket: Ticket) -> AbstractContextManager[list[np.ndarray] | None]: ...
    def submit(self, ticket: Ticket, inputs: list[np.ndarray]) -> None: ...
    def expire(self, ticket: Ticket) -> None: ...
    def reject(self, ticket: Ticket, error: HeadraceError) -> None: ...
    def close(self, *, drain: bool = True) -> None: ...
