"""What `Batcher` keeps behind its lock, for whoever drives a policy through virtual time: its queue, and what is free."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import Decision, Dispatch, Reject, Rejection, Waiting

__all__ = ["Dropped", "Entry", "Idle", "Policy", "Started", "VirtualBatcher"]


class Policy(Protocol):
    """The decisions of a batcher, as `BatchPolicy` makes them."""

    def admit(
        self,
        now: float,
        *,
        rows: int,
        deadline: float,
        ahead: Sequence[Waiting],
        waiting: int,
        limit: int,
        busy_until: Sequence[float],
        table: LatencyTable,
    ) -> Rejection | None: ...

    def decide(
        self,
        now: float,
        queue: Sequence[Waiting],
        table: LatencyTable,
        *,
        free: int,
        coming: int = 0,
        instances: int = 1,
    ) -> Decision: ...


class Entry(Protocol):
    """A request: `order` is that of service (`service_order`), `queued` is set when its rows are there."""

    rows: int
    deadline: float
    priority: int
    order: tuple[int, float, int]
    queued: float

    def __hash__(self) -> int: ...


T = TypeVar("T", bound=Entry)


@dataclass(frozen=True, slots=True)
class Started(Generic[T]):
    """An instance begins a batch: these requests with so many rows, padded to `bucket`."""

    instance: int
    requests: tuple[T, ...]
    rows: int
    bucket: int


@dataclass(frozen=True, slots=True)
class Dropped(Generic[T]):
    """The policy gave up a request that waited."""

    request: T


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing begins before something happens, or before `until`."""

    until: float | None


class VirtualBatcher(Generic[T]):
    """One model's queue and instances. Whoever drives it says what time it is and how long batches take.

    After everything that happens, `turn` is to be called until it answers `Idle`.
    """

    def __init__(self, policy: Policy, profile: Mapping[int, float], *, instances: int = 1, max_queue: int = 256) -> None:
        self.table = LatencyTable(profile)
        self._policy = policy
        self._max_queue = max_queue
        self._queue: list[T] = []
        self._coming: dict[T, None] = {}
        self._free = list(range(instances))
        self._busy_until = [0.0] * instances

    @property
    def empty(self) -> bool:
        """Whether no request is coming or waits."""
        return not self._queue and not self._coming

    def admit(self, now: float, request: T) -> Rejection | None:
        """Take a request that arrives, or say why not; its rows come with `submit`."""
        rejection = self._policy.admit(
            now,
            rows=request.rows,
            deadline=request.deadline,
            ahead=[other for other in (*self._queue, *self._coming) if other.order < request.order],
            waiting=len(self._queue) + len(self._coming),
            limit=self._max_queue,
            busy_until=self._busy_until,
            table=self.table,
        )
        if rejection is None:
            self._coming[request] = None
        return rejection

    def is_coming(self, request: T) -> bool:
        """Whether its rows are awaited still."""
        return request in self._coming

    def submit(self, now: float, request: T) -> None:
        """Queue a request whose rows are there. Does nothing if it was withdrawn meanwhile."""
        if self._coming.pop(request, "gone") == "gone":
            return
        request.queued = now
        bisect.insort(self._queue, request, key=lambda queued: queued.order)

    def withdraw(self, request: T) -> bool:
        """Take a request out of line; False when it is not there any more, since it runs or is done."""
        if request in self._coming:
            del self._coming[request]
        elif request in self._queue:
            self._queue.remove(request)
        else:
            return False
        return True

    def turn(self, now: float) -> Started[T] | Dropped[T] | Idle:
        """What an idle instance does now."""
        if not self._free:
            return Idle(None)
        coming = sum(request.rows for request in self._coming)
        decision = self._policy.decide(
            now, self._queue, self.table, free=len(self._free), coming=coming, instances=len(self._busy_until)
        )
        if isinstance(decision, Reject):
            return Dropped(self._queue.pop(decision.index))
        if not isinstance(decision, Dispatch):
            return Idle(decision.until)
        taken, self._queue = self._queue[: decision.count], self._queue[decision.count :]
        rows = sum(request.rows for request in taken)
        assert taken, "a policy ran an empty batch"
        assert rows <= decision.bucket, "a policy ran more rows than fit"
        instance = self._free.pop(0)
        self._busy_until[instance] = now + self.table.seconds(decision.bucket)
        return Started(instance, tuple(taken), rows, decision.bucket)

    def ended(self, batch: Started[T], seconds: float) -> None:
        """An instance has run its batch, which took so long, and is free again."""
        self.table.observe(batch.bucket, seconds)
        bisect.insort(self._free, batch.instance)
