"""One model's queue and instances in virtual time: what `Batcher` does with threads and a lock, event by event.

Both simulations have it: that of policies (`simulate`), and that of whole servers (`tests.benchmarks.scale`).
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import Decision, Dispatch, Reject, Rejection, Waiting

from .clock import Clock

__all__ = ["Batch", "Engine", "Policy", "Request", "Workers"]


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


@dataclass(slots=True, eq=False)
class Request:
    """One request and what became of it. Times are virtual seconds; `finished` is when its outcome was known.

    `order` is that of service (`service_order`), `queued` is set when its rows are there. The outcomes of the engine are
    "answered", "dropped" (given up by the policy) and "expired" (still waiting when its deadline passed).
    """

    rows: int
    deadline: float
    arrived: float
    priority: int
    order: tuple[int, float, int]
    queued: float = math.nan
    finished: float = math.nan
    outcome: str = "waiting"

    @property
    def on_time(self) -> bool:
        return self.outcome == "answered" and self.finished <= self.deadline + 1e-9  # sums of floats may differ by rounding


@dataclass(slots=True, eq=False)
class Batch:
    """One run of one instance: `rows` real rows padded to `bucket`."""

    instance: int
    begin: float
    rows: int
    bucket: int
    requests: Sequence[Request]
    end: float = math.nan


class Engine:
    """`run` is called with every batch that begins, and with what it calls when the batch has ended; `settle` with every
    admitted request whose outcome is known."""

    def __init__(
        self,
        clock: Clock,
        policy: Policy,
        profile: Mapping[int, float],
        *,
        run: Callable[[Batch, Callable[[], None]], object],
        settle: Callable[[Request], object],
        instances: int = 1,
        max_queue: int = 256,
    ) -> None:
        self.table = LatencyTable(profile)
        self._clock, self._policy, self._run, self._settle = clock, policy, run, settle
        self._max_queue = max_queue
        self._queue: list[Request] = []
        self._coming: dict[Request, None] = {}
        self._free = list(range(instances))
        self._busy_until = [0.0] * instances
        self._alarm = math.inf
        self._settling = self._closed = False

    @property
    def empty(self) -> bool:
        """Whether no request is coming or waits."""
        return not self._queue and not self._coming

    def close(self) -> None:
        """Do nothing more, whatever runs."""
        self._closed = True

    def admit(self, request: Request) -> Rejection | None:
        """Take a request that arrives, or say why not; its rows come with `submit`."""
        ahead = [other for other in (*self._queue, *self._coming) if other.order < request.order]
        rejection = self._policy.admit(
            self._clock.now,
            rows=request.rows,
            deadline=request.deadline,
            ahead=ahead,
            ahead_rows=sum(other.rows for other in ahead),
            waiting=len(self._queue) + len(self._coming),
            limit=self._max_queue,
            busy_until=self._busy_until,
            table=self.table,
        )
        if rejection is None:
            self._coming[request] = None
            if math.isfinite(request.deadline):
                self._clock.at(request.deadline, lambda: self._expire(request))
        self._turn()
        return rejection

    def submit(self, request: Request) -> None:
        """Queue a request whose rows are there, unless it was given up meanwhile."""
        if self._coming.pop(request, "gone") != "gone":
            request.queued = self._clock.now
            bisect.insort(self._queue, request, key=lambda queued: queued.order)
        self._turn()

    def _expire(self, request: Request) -> None:
        if request.outcome == "waiting" and not self._closed:  # one that runs will be answered
            if request in self._coming:
                del self._coming[request]
                self._end(request, "expired")
            elif request in self._queue:
                self._queue.remove(request)
                self._end(request, "expired")
        self._turn()

    def _turn(self) -> None:
        """What the idle instances' threads do now."""
        while self._free and not self._settling and not self._closed:
            coming = sum(request.rows for request in self._coming)
            now = self._clock.now
            decision = self._policy.decide(
                now, self._queue, self.table, free=len(self._free), coming=coming, instances=len(self._busy_until)
            )
            if isinstance(decision, Dispatch):
                self._begin(decision)
            elif isinstance(decision, Reject):
                self._end(self._queue.pop(decision.index), "dropped")
            else:
                if decision.until is not None and not now < self._alarm <= decision.until:
                    self._alarm = decision.until
                    self._clock.at(decision.until, self._turn)
                return

    def _begin(self, decision: Dispatch) -> None:
        taken, self._queue = self._queue[: decision.count], self._queue[decision.count :]
        rows = sum(request.rows for request in taken)
        assert taken, "a policy ran an empty batch"
        assert rows <= decision.bucket, "a policy ran more rows than fit"
        batch = Batch(self._free.pop(0), self._clock.now, rows, decision.bucket, taken)
        self._busy_until[batch.instance] = batch.begin + self.table.seconds(decision.bucket)
        self._run(batch, lambda: self._ended(batch))

    def _ended(self, batch: Batch) -> None:
        if self._closed:
            return
        batch.end = self._clock.now
        self.table.observe(batch.bucket, batch.end - batch.begin)
        bisect.insort(self._free, batch.instance)
        self._settling = True  # whoever asks again at once is there before an instance looks
        for request in batch.requests:
            self._end(request, "answered")
        self._settling = False
        self._turn()

    def _end(self, request: Request, outcome: str) -> None:
        request.outcome, request.finished = outcome, self._clock.now
        self.table.settle(in_time=outcome == "answered" and request.finished <= request.deadline)
        self._settle(request)


class Workers:
    """Threads that take work in turn: an event loop is one, a pool of decoders several. `run` does work of so many seconds, and
    calls what it is given when that is done."""

    def __init__(self, run: Callable[[float, Callable[[], None]], object], count: float) -> None:
        self._run, self._idle = run, count
        self._waiting: deque[tuple[Callable[[], float], Callable[[], object]]] = deque()

    def run(self, seconds: Callable[[], float], done: Callable[[], object]) -> None:
        """Have a thread do this, and call `done`; `seconds` is asked when it begins."""
        self._waiting.append((seconds, done))
        self._start()

    def _start(self) -> None:
        while self._idle and self._waiting:
            seconds, done = self._waiting.popleft()
            self._idle -= 1
            self._run(seconds(), lambda done=done: self._end(done))

    def _end(self, done: Callable[[], object]) -> None:
        self._idle += 1
        self._start()
        done()
