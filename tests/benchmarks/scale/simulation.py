"""Traffic through simulated servers: clients that wait for their answers, or arrivals that do not care; and what came of it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from headrace.serving.bench.load.http_load import RECONNECT_SECONDS

from ..simulation.clock import Clock
from ..simulation.engine import Workers
from ..simulation.traffic import poisson
from .balancer import Balancer, Balancing, Failure
from .cores import Cores
from .model import ServerSpec
from .server import Outcome, Server

__all__ = ["Cluster", "Record", "Result", "closed", "opened", "sustainable"]

_HIGHEST_RATE = 1e6


class Record(NamedTuple):
    """One request: when it was due and when its outcome reached the client, in virtual seconds."""

    due: float
    finished: float
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """As many servers alike, behind one balancer, and what will happen to them.

    `client` is the processor time that the load generator takes per request on the cores of the first server, which is how
    one machine is measured; None where clients are elsewhere.
    """

    spec: ServerSpec
    servers: int = 1
    balancing: Balancing = field(default_factory=Balancing)
    failures: tuple[Failure, ...] = ()
    client: float | None = None

    def __post_init__(self) -> None:
        if self.servers < 1 or any(number >= self.servers for one in self.failures for number in one.servers):
            raise ValueError(f"a cluster needs servers, and failures only of those it has, got {self.servers} servers")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of every request that was sent. Figures are of those due, or answered, between `begin` and `end`."""

    records: Sequence[Record]
    begin: float
    end: float

    @property
    def outcomes(self) -> Counter[str]:
        """Of all requests, also those outside the window."""
        return Counter(record.outcome for record in self.records)

    @property
    def rate(self) -> float:
        """Answers per second."""
        answered = (one for one in self.records if one.outcome == "answered")
        return sum(self.begin <= one.finished <= self.end for one in answered) / (self.end - self.begin)

    def goodput(self, limit: float) -> float:
        """Requests per second that were answered within `limit` seconds of being due."""
        return sum(one.finished - one.due <= limit for one in self._answered()) / (self.end - self.begin)

    def in_time(self, limit: float) -> float:
        """Of all that were due, the share that was answered within `limit` seconds."""
        due = sum(self.begin <= one.due <= self.end for one in self.records)
        return sum(one.finished - one.due <= limit for one in self._answered()) / due if due else math.nan

    def latency(self, share: float) -> float:
        """Seconds that this share of the answered requests took at most (nearest rank); NaN of none."""
        times = sorted(one.finished - one.due for one in self._answered())
        return times[max(0, math.ceil(share * len(times)) - 1)] if times else math.nan

    def between(self, begin: float, end: float) -> Result:
        """The same requests, looked at in another window."""
        return Result(records=self.records, begin=begin, end=end)

    def _answered(self) -> Iterable[Record]:
        return (one for one in self.records if one.outcome == "answered" and self.begin <= one.due <= self.end)


def closed(cluster: Cluster, *, connections: int, seconds: float, warm_up: float = 1.0, seed: int = 0) -> Result:
    """So many clients that each send the next request when they have the answer, for `seconds` after `warm_up`."""
    run = _Run(cluster, seed)
    for _ in range(connections):
        run.client(warm_up + seconds)
    return run.result(warm_up, warm_up + seconds)


def opened(
    cluster: Cluster, arrivals: Sequence[float], *, timeout: float = math.inf, warm_up: float = 0.0, seed: int = 0
) -> Result:
    """Requests at those moments whatever the servers do; each allows `timeout` seconds at the server."""
    run = _Run(cluster, seed)
    run.arrive(iter(arrivals), timeout)
    return run.result(warm_up, max(arrivals, default=warm_up) + 1e-9)


def sustainable(
    cluster: Cluster, *, limit: float, requests: int = 8000, start: float = 50.0, precision: float = 0.04, seed: int = 0
) -> float:
    """The highest rate of Poisson traffic of which 99 % are answered within `limit` seconds; 0 when none is.

    As `serving.sustainable` searches with real servers: double or halve from `start`, then halve the interval between. Each
    rate is tried with so many requests.
    """

    def holds(rate: float) -> bool:
        return opened(cluster, poisson(rate, requests / rate, seed=seed), timeout=limit, seed=seed).in_time(limit) >= 0.99

    low, high = start, start
    if holds(start):
        while high < _HIGHEST_RATE and holds(high := high * 2):
            low = high
    else:
        while not holds(low := low / 2):
            high = low
            if low < 0.1:
                return 0.0
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class _Run:
    """One simulation."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._clock = Clock()
        source = random.Random(seed)
        # Each server has a source of its own, so that what one does changes nothing in another.
        sources = [random.Random(source.random()) for _ in range(cluster.servers)]
        cores = None if cluster.client is None else Cores(self._clock, cluster.spec.speeds)
        servers = [
            Server(self._clock, cluster.spec, source, cores=None if number else cores) for number, source in enumerate(sources)
        ]
        self._balancer = Balancer(self._clock, servers, cluster.balancing, cluster.failures)
        self._half = (cluster.client or 0.0) / 2
        self._sender = None if cores is None else Workers(cores.thread, 1)
        self._records: list[Record] = []

    def client(self, until: float) -> None:
        """One connection that is never idle."""
        if self._clock.now >= until:
            return

        def answered(outcome: Outcome) -> None:
            if outcome == "failed":
                self._clock.after(RECONNECT_SECONDS, partial(self.client, until))
            else:
                self.client(until)

        self._request(self._clock.now, math.inf, answered)

    def arrive(self, arrivals: Iterator[float], timeout: float) -> None:
        """Every request at its moment."""
        at = next(arrivals, None)
        if at is not None:
            self._clock.at(at, partial(self._arrived, at, arrivals, timeout))

    def _arrived(self, at: float, arrivals: Iterator[float], timeout: float) -> None:
        self._request(at, timeout, lambda _: None)
        self.arrive(arrivals, timeout)

    def _request(self, due: float, timeout: float, then: Callable[[Outcome], object]) -> None:
        def finished(outcome: Outcome) -> None:
            self._records.append(Record(due, self._clock.now, outcome))
            then(outcome)

        def answered(outcome: Outcome) -> None:
            self._send(partial(finished, outcome))

        self._send(partial(self._balancer.send, timeout, answered))

    def _send(self, then: Callable[[], object]) -> None:
        """What the load generator does with a request before it goes on."""
        if self._sender is None:
            then()
        else:
            self._sender.run(lambda: self._half, then)

    def result(self, begin: float, end: float) -> Result:
        """Run to the last event, and say what came of it."""
        self._clock.run()
        return Result(records=self._records, begin=begin, end=end)
