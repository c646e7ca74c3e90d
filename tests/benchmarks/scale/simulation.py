"""Traffic through simulated servers: clients that wait for their answers, or arrivals that do not care; and what came of it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import BenchError
from headrace.serving.bench.load.http_load import RECONNECT_SECONDS

from .balancer import Balancer, Balancing, Failure
from .cores import Cores, Workers
from .model import ServerSpec
from .server import Outcome, Server

if TYPE_CHECKING:
    from simpy import Environment, Event

__all__ = ["Cluster", "Record", "Result", "closed", "environment", "opened", "sustainable"]

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
    batch_sizes: Counter[int] = field(default_factory=Counter)
    core_seconds: float = 0.0

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

    def to_json(self) -> dict[str, Any]:
        """The figures, without the single requests."""
        return {
            "requests": len(self.records),
            "seconds": round(self.end - self.begin, 3),
            "requests_per_second": round(self.rate, 2),
            "p50_ms": _milliseconds(self.latency(0.5)),
            "p99_ms": _milliseconds(self.latency(0.99)),
            "outcomes": dict(sorted(self.outcomes.items())),
        }


def environment() -> Environment:
    """Virtual time. Raises BenchError where simpy is not installed."""
    if find_spec("simpy") is None:
        raise BenchError("the simulation of many machines needs simpy; install it with: pip install 'headrace[scale]'")
    import simpy

    return simpy.Environment()


def closed(cluster: Cluster, *, connections: int, seconds: float, warm_up: float = 1.0, seed: int = 0) -> Result:
    """So many clients that each send the next request when they have the answer, for `seconds` after `warm_up`."""
    run = _Run(cluster, seed)
    for _ in range(connections):
        run.env.process(run.client(warm_up + seconds))
    return run.result(warm_up, warm_up + seconds)


def opened(
    cluster: Cluster, arrivals: Sequence[float], *, timeout: float = math.inf, warm_up: float = 0.0, seed: int = 0
) -> Result:
    """Requests at those moments whatever the servers do; each allows `timeout` seconds at the server."""
    run = _Run(cluster, seed)
    run.env.process(run.arrive(arrivals, timeout))
    return run.result(warm_up, max(arrivals, default=warm_up) + 1e-9)


def sustainable(
    cluster: Cluster, *, limit: float, requests: int = 8000, start: float = 50.0, precision: float = 0.04, seed: int = 0
) -> float:
    """The highest rate of Poisson traffic of which 99 % are answered within `limit` seconds; 0 when none is.

    As `serving.bench.sweep` searches with real servers: double or halve from `start`, then halve the interval between. Each
    rate is tried with so many requests.
    """
    from ..simulation.traffic import poisson

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
        self.env = environment()
        source = random.Random(seed)
        # Each server has a source of its own, so that what one does changes nothing in another.
        sources = [random.Random(source.random()) for _ in range(cluster.servers)]
        cores = None if cluster.client is None else Cores(self.env, cluster.spec.speeds)
        self._servers = [
            Server(self.env, cluster.spec, source, name=str(number), cores=None if number else cores)
            for number, source in enumerate(sources)
        ]
        self._balancer = Balancer(self.env, self._servers, cluster.balancing, cluster.failures)
        self._cores, self._half = cores, (cluster.client or 0.0) / 2
        self._sender = None if cores is None else Workers(self.env, cores, 1)
        self._records: list[Record] = []

    def client(self, until: float) -> Generator[Event, Any, None]:
        """One connection that is never idle."""
        while self.env.now < until:
            yield from self._request(self.env.now, math.inf)
            if self._records[-1].outcome == "failed":
                yield self.env.timeout(RECONNECT_SECONDS)

    def arrive(self, arrivals: Iterable[float], timeout: float) -> Generator[Event, Any, None]:
        for at in arrivals:
            yield self.env.timeout(max(0.0, at - self.env.now))
            self.env.process(self._request(at, timeout))

    def _request(self, due: float, timeout: float) -> Generator[Event, Any, None]:
        if self._sender is not None:
            yield self._sender.run(lambda: self._half)
        outcome = yield self._balancer.send(timeout)
        if self._sender is not None:
            yield self._sender.run(lambda: self._half)
        self._records.append(Record(due, self.env.now, outcome))

    def result(self, begin: float, end: float) -> Result:
        """Run to the last event, and say what came of it."""
        self.env.run()
        sizes: Counter[int] = Counter()
        for server in self._servers:
            sizes.update(server.batch_sizes)
        busy = 0.0 if self._cores is None else self._cores.busy
        return Result(records=self._records, begin=begin, end=end, batch_sizes=sizes, core_seconds=busy)


def _milliseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(1e3 * seconds, 3)
