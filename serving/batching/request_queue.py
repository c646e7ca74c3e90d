"""What the data plane needs of a batcher, which may run in this process or behind another one's socket."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from ...errors import HeadraceError
from .batcher import Ticket
from .latency_table import LatencyTable


class RequestQueue(Protocol):
    """One model's queue: `Batcher` itself, or a front end's view of the engine's. Any thread may call any method.

    A ticket's future resolves to the outputs' rows, or to a RequestError; a rejection may also come that way, after `admit` has
    returned, since a front end does not wait for the engine's word before it decodes.
    """

    @property
    def table(self) -> LatencyTable:
        """The profile by which requests are admitted; its largest bucket is the most rows of one request."""
        ...

    @property
    def depth(self) -> int:
        """Requests that were admitted and do not run yet."""
        ...

    def admit(self, rows: int, *, timeout: float, priority: int = 0) -> Ticket:
        """Take a place; raises OverloadedError or InputError."""
        ...

    def slot(self, ticket: Ticket) -> AbstractContextManager[list[np.ndarray] | None]:
        """Where the ticket's inputs may be written before they are submitted, which saves a copy; None is no such place."""
        ...

    def submit(self, ticket: Ticket, inputs: list[np.ndarray]) -> None:
        """Queue an admitted request; does nothing if it was given up meanwhile."""
        ...

    def expire(self, ticket: Ticket) -> None:
        """Its deadline has passed: reject it unless it runs already."""
        ...

    def reject(self, ticket: Ticket, error: HeadraceError) -> None:
        """Answer with an error, unless the request already runs or was answered."""
        ...

    def close(self, *, drain: bool = True) -> None:
        """Admit nothing more, and end once what was admitted is answered."""
        ...
