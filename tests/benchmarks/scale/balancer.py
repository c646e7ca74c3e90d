"""A load balancer over servers that fail: to whom a request goes, who is known to be down, what is tried again elsewhere."""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from .server import Outcome, Server

if TYPE_CHECKING:
    from simpy import Environment, Event

__all__ = ["Balancer", "Balancing", "Failure", "random_failures"]

Choice = Literal["least", "turns"]


@dataclass(frozen=True, slots=True)
class Failure:
    """At second `at` these servers (by number) fail together, as those of one machine do, and serve again after `seconds`."""

    at: float
    servers: tuple[int, ...]
    seconds: float

    def __post_init__(self) -> None:
        if self.at < 0 or self.seconds <= 0 or not self.servers:
            raise ValueError(f"a failure needs at >= 0, seconds > 0 and servers, got {self}")


def random_failures(
    machines: Sequence[Sequence[int]], *, seconds: float, between: float, down: float, seed: int = 0
) -> list[Failure]:
    """Each machine, given by its servers, fails after exponential times with the mean `between`, for `down` seconds."""
    source, found = random.Random(seed), []
    for servers in machines:
        at = source.expovariate(1 / between)
        while at < seconds:
            found.append(Failure(at, tuple(servers), down))
            at += down + source.expovariate(1 / between)
    return sorted(found, key=lambda one: one.at)


@dataclass(frozen=True, kw_only=True)
class Balancing:
    """To the server with the least requests under way, or to each in turn. A request that is lost with its server is sent to
    another up to `retries` times: classifying twice does no harm. A server counts as up or down as of `probe` seconds ago.
    """

    choice: Choice = "least"
    retries: int = 1
    probe: float = 1.0

    def __post_init__(self) -> None:
        if self.choice not in get_args(Choice) or self.retries < 0 or self.probe < 0:
            raise ValueError(f"choice must be one of {get_args(Choice)}, retries and probe not negative, got {self}")


class Balancer:
    """Sends requests to servers, and lets these fail."""

    def __init__(
        self, env: Environment, servers: Sequence[Server], balancing: Balancing, failures: Iterable[Failure] = ()
    ) -> None:
        self._env, self._servers, self._balancing = env, servers, balancing
        self._under_way = [0] * len(servers)
        self._believed = dict.fromkeys(range(len(servers)))
        self._turn = itertools.count()
        for failure in failures:
            env.process(self._fail(failure))

    def send(self, timeout: float) -> Event:
        """What happens with the outcome of a request that allows so many seconds at each server that it is sent to."""
        return self._env.process(self._send(timeout))

    def _send(self, timeout: float) -> Generator[Event, Any, Outcome]:
        outcome: Outcome = "failed"
        tried: set[int] = set()
        for _ in range(1 + self._balancing.retries):
            number = self._choose(tried)
            if number is None:
                break
            tried.add(number)
            self._under_way[number] += 1
            outcome = yield self._servers[number].send(timeout)
            self._under_way[number] -= 1
            if outcome != "failed":
                break
        return outcome

    def _choose(self, tried: set[int]) -> int | None:
        believed = [number for number in self._believed if number not in tried]
        if not believed:
            return None
        turn = next(self._turn) % len(believed)
        if self._balancing.choice == "turns":
            return believed[turn]
        # Among equals each has its turn, or the first would have all of the work while there is little.
        return min(believed[turn:] + believed[:turn], key=self._under_way.__getitem__)

    def _fail(self, failure: Failure) -> Generator[Event, Any, None]:
        yield self._env.timeout(failure.at)
        hit = [number for number in failure.servers if self._servers[number].up]
        for number in hit:
            self._servers[number].fail()
        self._env.process(self._learn(hit, up=False))
        yield self._env.timeout(failure.seconds)
        for number in hit:
            self._servers[number].restart()
        self._env.process(self._learn(hit, up=True))

    def _learn(self, servers: Sequence[int], *, up: bool) -> Generator[Event, Any, None]:
        yield self._env.timeout(self._balancing.probe)
        for number in servers:
            if up:
                self._believed[number] = None
            else:
                self._believed.pop(number, None)
