"""Drives a batching policy through virtual time, event by event, in the way `Batcher` drives it through real time."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from headrace.serving.batching.policy import service_order

from .traffic import Arrival
from .virtual import Dropped, Policy, Started, VirtualBatcher

__all__ = ["Batch", "Machine", "Policy", "Request", "Simulation", "simulate"]

# What became of a request: answered; rejected on arrival because the queue was full or the answer would have been late; given
# up by the policy (dropped); or still waiting when its deadline passed.
Outcome = Literal["waiting", "answered", "full", "late", "dropped", "expired"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What serves. `profile` is the latency table that warm-up measured, seconds per batch size, for each of `instances`.

    A batch really takes its profile's time times `slowdown`, times a log-normal factor with mean 1 whose logarithm has the
    standard deviation `noise`. Before it is queued, a request is decoded for `decode_seconds` per row by one of `decoders`
    threads (None: there is always a free one). `max_queue` requests may wait.
    """

    profile: Mapping[int, float]
    instances: int = 1
    slowdown: float = 1.0
    noise: float = 0.0
    decode_seconds: float = 0.0
    decoders: int | None = None
    max_queue: int = 256

    def __post_init__(self) -> None:
        if self.instances < 1 or self.max_queue < 1 or (self.decoders is not None and self.decoders < 1):
            raise ValueError("instances, decoders and max_queue must be at least 1")
        if not (self.slowdown > 0 and self.noise >= 0 and self.decode_seconds >= 0):
            raise ValueError("slowdown must be positive, noise and decode_seconds must not be negative")

    @property
    def rows_per_second(self) -> float:
        """What all instances together can run at most."""
        return self.instances * max(bucket / seconds for bucket, seconds in self.profile.items()) / self.slowdown

    def to_json(self) -> dict[str, Any]:
        """The profile in milliseconds, and the rest."""
        profile = {str(bucket): round(1e3 * seconds, 4) for bucket, seconds in self.profile.items()}
        return {**asdict(self), "profile": profile}


@dataclass(slots=True, eq=False)
class Request:
    """One request and what became of it. Times are virtual seconds; `finished` is when its outcome was known."""

    rows: int
    deadline: float
    arrived: float
    priority: int
    order: tuple[int, float, int]
    queued: float = math.nan
    finished: float = math.nan
    outcome: Outcome = "waiting"

    @property
    def on_time(self) -> bool:
        return self.outcome == "answered" and self.finished <= self.deadline + 1e-9  # sums of floats may differ by rounding


@dataclass(frozen=True, slots=True)
class Batch:
    """One run of one instance: `rows` real rows padded to `bucket`."""

    instance: int
    begin: float
    end: float
    rows: int
    bucket: int
    requests: tuple[Request, ...]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What happened. `seconds` ends with the last event; requests stand in order of arrival, batches in that of their begin."""

    requests: Sequence[Request]
    batches: Sequence[Batch]
    seconds: float
    instances: int
    outcomes: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcomes", Counter(request.outcome for request in self.requests))

    @property
    def on_time_share(self) -> float:
        """The share of all requests, rejected ones included, that were answered by their deadlines."""
        return sum(request.on_time for request in self.requests) / len(self.requests) if self.requests else math.nan

    @property
    def goodput(self) -> float:
        """Requests answered by their deadlines, per second."""
        return sum(request.on_time for request in self.requests) / self.seconds if self.seconds else 0.0

    @property
    def idle_share(self) -> float:
        """How much of the instances' time was not spent running batches."""
        busy = sum(batch.end - batch.begin for batch in self.batches)
        return 1 - busy / (self.instances * self.seconds) if self.seconds else 1.0

    @property
    def batch_sizes(self) -> dict[int, int]:
        """How many batches held so many real rows."""
        return dict(sorted(Counter(batch.rows for batch in self.batches).items()))

    def latency(self, share: float) -> float:
        """Seconds from arrival to answer that this share of the answered requests took at most (nearest rank); NaN of none."""
        times = sorted(request.finished - request.arrived for request in self.requests if request.outcome == "answered")
        return times[max(0, math.ceil(share * len(times)) - 1)] if times else math.nan

    def to_json(self) -> dict[str, Any]:
        """The figures, without the single requests."""
        return {
            "requests": len(self.requests),
            "seconds": round(self.seconds, 6),
            "goodput": round(self.goodput, 3),
            "on_time_share": _rounded(self.on_time_share, 5),
            "p50_ms": _rounded(1e3 * self.latency(0.5), 4),
            "p99_ms": _rounded(1e3 * self.latency(0.99), 4),
            "outcomes": dict(sorted(self.outcomes.items())),
            "idle_share": round(self.idle_share, 5),
            "batch_sizes": {str(rows): count for rows, count in self.batch_sizes.items()},
        }


def simulate(
    policy: Policy,
    arrivals: Iterable[Arrival],
    machine: Machine,
    *,
    seed: int = 0,
    follow_ups: int = 0,
    ran: Callable[[int, float], None] | None = None,
) -> Simulation:
    """Let `policy` serve those arrivals. The same arguments give the same result.

    With `follow_ups`, as many further requests come, each like one that was just answered and at that moment: the clients of a
    closed loop. `ran` is told the rows and seconds of every batch, for policies that learn from more than the latency table.
    """
    return _Run(policy, machine, random.Random(seed), follow_ups, ran).through(arrivals)


class _Run:
    """A heap of events in place of the threads of `Batcher`."""

    def __init__(
        self,
        policy: Policy,
        machine: Machine,
        source: random.Random,
        follow_ups: int,
        ran: Callable[[int, float], None] | None,
    ) -> None:
        self._machine, self._random = machine, source
        self._follow_ups, self._ran = follow_ups, ran
        self._batcher: VirtualBatcher[Request] = VirtualBatcher(
            policy, machine.profile, instances=machine.instances, max_queue=machine.max_queue
        )
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._serial = 0
        self._now = 0.0
        self._undecoded: deque[Request] = deque()
        self._idle_decoders = math.inf if machine.decoders is None else machine.decoders
        self._alarm = math.inf
        self._requests: list[Request] = []
        self._batches: list[Batch] = []

    def through(self, arrivals: Iterable[Arrival]) -> Simulation:
        for arrival in arrivals:
            self._at(arrival.at, self._arrive, arrival)
        while self._events:
            self._now, _, happen, what = heapq.heappop(self._events)
            happen(what)
            self._decide()
        assert self._batcher.empty, "requests wait and nothing will happen any more"
        end = max((r.finished for r in self._requests), default=0.0)
        return Simulation(requests=self._requests, batches=self._batches, seconds=end, instances=self._machine.instances)

    def _at(self, when: float, happen: Callable[[Any], None], what: object) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, happen, what))

    def _arrive(self, arrival: Arrival) -> None:
        deadline = self._now + arrival.timeout
        order = service_order(arrival.priority, deadline, len(self._requests))
        request = Request(arrival.rows, deadline, self._now, order[0], order)
        self._requests.append(request)
        rejection = self._batcher.admit(self._now, request)
        if rejection is not None:
            self._end(request, "full" if rejection.full else "late")
            return
        if math.isfinite(deadline):
            self._at(deadline, self._expire, request)
        self._undecoded.append(request)
        self._start_decoding()

    def _start_decoding(self) -> None:
        while self._undecoded and self._idle_decoders:
            request = self._undecoded.popleft()
            if self._batcher.is_coming(request):
                self._idle_decoders -= 1
                self._at(self._now + request.rows * self._machine.decode_seconds, self._decoded, request)

    def _decoded(self, request: Request) -> None:
        self._idle_decoders += 1
        self._start_decoding()
        self._batcher.submit(self._now, request)

    def _expire(self, request: Request) -> None:
        if request.outcome == "waiting" and self._batcher.withdraw(request):  # one that runs will be answered
            self._end(request, "expired")

    def _decide(self) -> None:
        """What the idle instances' threads do now."""
        while True:
            step = self._batcher.turn(self._now)
            if isinstance(step, Started):
                self._run_batch(step)
            elif isinstance(step, Dropped):
                self._end(step.request, "dropped")
            else:
                if step.until is not None and not self._now < self._alarm <= step.until:
                    self._alarm = step.until
                    self._at(step.until, lambda _: None, None)
                return

    def _run_batch(self, started: Started[Request]) -> None:
        seconds = self._machine.profile[started.bucket] * self._machine.slowdown
        if self._machine.noise:
            sigma = self._machine.noise
            seconds *= math.exp(self._random.gauss(-sigma * sigma / 2, sigma))
        batch = Batch(started.instance, self._now, self._now + seconds, started.rows, started.bucket, started.requests)
        self._batches.append(batch)
        self._at(batch.end, self._done, (batch, started))

    def _done(self, ended: tuple[Batch, Started[Request]]) -> None:
        batch, started = ended
        seconds = batch.end - batch.begin
        self._batcher.ended(started, seconds)
        if self._ran is not None:
            self._ran(batch.rows, seconds)
        for request in batch.requests:
            self._end(request, "answered")
            if self._follow_ups > 0:
                self._follow_ups -= 1
                self._arrive(Arrival(self._now, request.rows, request.deadline - request.arrived, request.priority))

    def _end(self, request: Request, outcome: Outcome) -> None:
        request.outcome, request.finished = outcome, self._now
        if outcome not in ("full", "late"):
            self._batcher.table.settle(in_time=outcome == "answered" and self._now <= request.deadline)


def _rounded(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(value, digits)
