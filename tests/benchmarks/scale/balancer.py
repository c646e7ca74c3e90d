"""A load balancer over servers that fail: to whom a request goes, who is known to be down, what is tried again elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from ..simulation.clock import Clock
from .server import Outcome, Server

__all__ = ["Balancer", "Balancing", "Failure"]

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

    def __init__(self, clock: Clock, servers: Sequence[Server], balancing: Balancing, failures: Iterable[Failure] = ()) -> None:
        self._clock, self._servers, self._balancing = clock, servers, balancing
        self._under_way = [0] * len(servers)
        self._believed = dict.fromkeys(range(len(servers)))
        self._turn = itertools.count()
        for failure in failures:
            clock.at(failure.at, partial(self._fail, failure))

    def send(self, timeout: float, answer: Callable[[Outcome], object], tried: frozenset[int] = frozenset()) -> None:
        """Have one of the servers answer a request, which allows so many seconds at each that it is sent to."""
        number = self._choose(tried) if len(tried) <= self._balancing.retries else None
        if number is None:
            answer("failed")
            return

        def answered(outcome: Outcome) -> None:
            self._under_way[number] -= 1
            if outcome == "failed":
                self.send(timeout, answer, tried | {number})
            else:
                answer(outcome)

        self._under_way[number] += 1
        self._servers[number].send(timeout, answered)

    def _choose(self, tried: frozenset[int]) -> int | None:
        believed = [number for number in self._believed if number not in tried]
        if not believed:
            return None
        turn = next(self._turn) % len(believed)
        if self._balancing.choice == "turns":
            return believed[turn]
        # Among equals each has its turn, or the first would have all of the work while there is little.
        return min(believed[turn:] + believed[:turn], key=self._under_way.__getitem__)

    def _fail(self, failure: Failure) -> None:
        hit = [number for number in failure.servers if self._servers[number].up]
        for number in hit:
            self._servers[number].fail()
        self._clock.after(self._balancing.probe, partial(self._learn, hit, up=False))
        self._clock.after(failure.seconds, partial(self._restart, hit))

    def _restart(self, servers: Sequence[int]) -> None:
        for number in servers:
            self._servers[number].restart()
        self._clock.after(self._balancing.probe, partial(self._learn, servers, up=True))

    def _learn(self, servers: Sequence[int], *, up: bool) -> None:
        for number in servers:
            if up:
                self._believed[number] = None
            else:
                self._believed.pop(number, None)
