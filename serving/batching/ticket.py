"""A request's place in a model's queue, what runs it, and how requests become one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Protocol

import numpy as np

from .collate import Placed
from .policy import service_order

Rows = list[np.ndarray]


class Joining(Enum):
    """What becomes one batch: any requests, padded to a bucket's rows; those whose rows have one shape, as many as there are;
    or each request by itself."""

    PADDED = "padded"
    EXACT = "exact"
    ALONE = "alone"


class Runner(Protocol):
    """What the batcher needs of a session."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]: ...
    def close(self) -> None: ...


Best = Callable[[Rows, int], Rows]
"""Of a model's outputs, so many best classes of each row, int64, and their probabilities, float64."""

Instance = Mapping[int, Runner]
"""The session of every bucket; buckets may share one."""


def close(instance: Instance) -> None:
    """Close every session of an instance once."""
    for session in {id(session): session for session in instance.values()}.values():
        session.close()


class Ticket:
    """A request's place: admitted first, queued once its tensors are there, resolved through `future`.

    `deadline`, `arrived` and `queued` are seconds on the monotonic clock, and `wait` is how many it may be queued, if not 0, by
    the model's queue policy. Cancelling `future` gives the place up at once. Once it has run, `began` and `ended` say when, on
    the same clock, and `batch` how many rows ran together. `place` is where its rows lie in the
    batcher's staging, if they do, and `writing` says that somebody puts them there. `placed` is where they lie in a memory that
    others share. With `best` it is answered with so many best classes and their probabilities, not with the outputs. `again`
    says that what was to compute it was lost, and that it waits for another.
    """

    __slots__ = (
        "again", "arrived", "batch", "began", "best", "deadline", "ended", "future", "inputs", "order", "place", "placed",
        "priority", "queued", "rows", "state", "wait", "writing",
    )  # fmt: skip

    def __init__(self, rows: int, deadline: float, priority: int, arrived: float, serial: int, best: int = 0) -> None:
        self.rows = rows
        self.best = best
        self.deadline = deadline
        self.wait = 0.0
        self.order = service_order(priority, deadline, serial)
        self.priority = self.order[0]
        self.arrived = arrived
        self.queued = arrived
        self.began = self.ended = 0.0
        self.batch = 0
        self.inputs: Rows = []
        self.place: int | None = None
        self.placed: Placed | None = None
        self.writing = False
        self.future: Future[Rows] = Future()
        self.state = "coming"
        self.again = False

    def wanted(self) -> bool:
        """Whether somebody waits for the answer, which cannot be given up from now on."""
        return self.again or self.future.set_running_or_notify_cancel()
