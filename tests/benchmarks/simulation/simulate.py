"""One batching policy on one machine, in virtual time: what became of every request."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from headrace.serving.batching.policy import service_order

from .clock import Clock
from .engine import Batch, Engine, Policy, Request, Workers
from .traffic import Arrival

__all__ = ["Machine", "Simulation", "simulate"]


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


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What happened. `seconds` ends with the last event; requests stand in order of arrival, batches in that of their begin.

    Outcomes beside the engine's: "full" and "late" were rejected on arrival, by a full queue or since the answer would be late.
    """

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
    """The engine, and before it the threads that decode."""

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
        self._clock = Clock()
        self._engine = Engine(
            self._clock,
            policy,
            machine.profile,
            run=self._run_batch,
            settle=self._follow_up,
            instances=machine.instances,
            max_queue=machine.max_queue,
        )
        self._decoders = Workers(self._clock.after, math.inf if machine.decoders is None else machine.decoders)
        self._requests: list[Request] = []
        self._batches: list[Batch] = []

    def through(self, arrivals: Iterable[Arrival]) -> Simulation:
        for arrival in arrivals:
            self._clock.at(arrival.at, partial(self._arrive, arrival))
        self._clock.run()
        assert self._engine.empty, "requests wait and nothing will happen any more"
        end = max((r.finished for r in self._requests), default=0.0)
        return Simulation(requests=self._requests, batches=self._batches, seconds=end, instances=self._machine.instances)

    def _arrive(self, arrival: Arrival) -> None:
        now = self._clock.now
        deadline = now + arrival.timeout
        order = service_order(arrival.priority, deadline, len(self._requests))
        request = Request(arrival.rows, deadline, now, order[0], order)
        self._requests.append(request)
        rejection = self._engine.admit(request)
        if rejection is None:
            self._decoders.run(partial(self._decode_seconds, request), partial(self._engine.submit, request))
        else:
            request.outcome, request.finished = "full" if rejection.full else "late", now

    def _decode_seconds(self, request: Request) -> float:
        return request.rows * self._machine.decode_seconds if request.outcome == "waiting" else 0.0

    def _run_batch(self, batch: Batch, ended: Callable[[], None]) -> None:
        seconds = self._machine.profile[batch.bucket] * self._machine.slowdown
        if self._machine.noise:
            sigma = self._machine.noise
            seconds *= math.exp(self._random.gauss(-sigma * sigma / 2, sigma))
        self._batches.append(batch)

        def end() -> None:
            if self._ran is not None:
                self._ran(batch.rows, seconds)
            ended()

        self._clock.after(seconds, end)

    def _follow_up(self, request: Request) -> None:
        if request.outcome == "answered" and self._follow_ups > 0:
            self._follow_ups -= 1
            self._arrive(Arrival(self._clock.now, request.rows, request.deadline - request.arrived, request.priority))


def _rounded(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(value, digits)
