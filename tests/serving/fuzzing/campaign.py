"""Cases by number against one server: many at a time, in stretches, after each of which the server is looked at."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc_client
import http2_client
import http_client
from case import Case, GrpcCase, Http2Case, HttpCase, Outcome, Problem
from drawing import Draw
from health import Health, Held, growth
from world import World

# Problems that are kept with what was sent; of more only the number is.
KEPT = 40
# Stretches that come before memory, files and threads are compared: pools, caches and the allocator fill up first.
WARM_UP = 0.25
# What the median of the later half may be over the earlier half's after that. In 100,000 cases a leak of 500 bytes per case is
# 19 MiB between these medians. Fewer cases say less: the allocator moves by tens of megabytes whatever is done.
GROWTH = 1.05
LEAST_GROWTH_BYTES = 24 << 20
# Files and threads that come and go: connections of the library that has not closed them yet, threads of pools that grow.
SLACK = 8


class Grammar(Protocol):
    """A module of grammars/."""

    WEIGHT: int

    @staticmethod
    def case(draw: Draw, world: World) -> Case: ...


def grammars() -> dict[str, Any]:
    """Every grammar by its file's name."""
    names = sorted(path.stem for path in (Path(__file__).parent / "grammars").glob("*.py"))
    return {name: importlib.import_module(f"grammars.{name}") for name in names}


def make(seed: int, number: int, world: World, known: Mapping[str, Any]) -> tuple[str, Case]:
    """The case of that number and the name of its grammar; always the same."""
    draw = Draw(seed, number)
    name = draw.weighted({name: grammar.WEIGHT for name, grammar in known.items()})
    return name, known[name].case(draw, world)


@dataclass(kw_only=True)
class Result:
    """What a campaign found."""

    seed: int
    cases: int = 0
    seconds: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    held: list[Held] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    found: int = 0

    def add(self, problem: Problem) -> None:
        """Keep a problem."""
        self.found += 1
        if len(self.problems) < KEPT:
            self.problems.append(problem)


class Campaign:
    """The cases of one seed. `each` is called after every case, `between` before each stretch."""

    def __init__(
        self,
        server: Any,
        world: World,
        *,
        seed: int,
        connections: int = 16,
        only: str | None = None,
        each: Callable[[], None] = lambda: None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._world = world
        self._seed = seed
        self._connections = connections
        self._only = only
        self._each = each
        self._between = between
        self._grammars = grammars()
        self._health = Health(server, world)
        self._ports = {name: _address(getattr(server, name)) for name in ("http", "metrics", "grpc")}
        self._grpc_address = server.grpc
        self.result = Result(seed=seed)

    async def run(self, cases: int, stretch: int) -> Result:
        """Run so many cases, `stretch` of them between two looks at the server."""
        begin = time.monotonic()
        await self._health.start()
        numbers = itertools.count()
        while self.result.cases < cases:
            await asyncio.to_thread(self._between)
            wanted = min(stretch, cases - self.result.cases)
            await self._stretch(self._some(numbers, wanted))
            if not await self._look():
                break
        self._judge_what_is_held(complete=self.result.cases >= cases)
        self.result.seconds = time.monotonic() - begin
        return self.result

    def _some(self, numbers: Iterator[int], count: int) -> Iterator[tuple[int, str, Case]]:
        while count:
            number = next(numbers)
            name, case = make(self._seed, number, self._world, self._grammars)
            if self._only in (None, name):
                count -= 1
                yield number, name, case

    async def one(self, number: int) -> Outcome:
        """Run one case by itself."""
        _, case = make(self._seed, number, self._world, self._grammars)
        async with grpc_client.channel(self._grpc_address) as channel:
            return await self._run(case, channel)

    async def _stretch(self, cases: Iterator[tuple[int, str, Case]]) -> None:
        async def work() -> None:
            async with grpc_client.channel(self._grpc_address) as channel:
                for number, name, case in cases:
                    outcome = await self._run(case, channel)
                    self.result.cases += 1
                    self.result.counts[name].update(outcome.statuses)
                    for what in outcome.problems:
                        self.result.add(Problem(f"{self._seed}:{number}", name, what, sent(case)))
                    self._each()

        async with asyncio.TaskGroup() as group:
            for _ in range(self._connections):
                group.create_task(work())

    async def _run(self, case: Case, channel: Any) -> Outcome:
        if isinstance(case, HttpCase):
            return await http_client.run(case, self._ports[case.port])
        if isinstance(case, Http2Case):
            return await http2_client.run(case, self._ports["grpc"])
        assert isinstance(case, GrpcCase)
        return await grpc_client.run(case, channel)

    async def _look(self) -> bool:
        """Whether the server is there to go on with."""
        wrong = await self._health.problems()
        for what in wrong:
            self.result.add(Problem(f"{self._seed}:..{self.result.cases}", "server", what, ""))
        if self._health.ended:
            return False
        self.result.held.append(await self._health.held(self.result.cases))
        return True

    def _judge_what_is_held(self, *, complete: bool) -> None:
        warm = self.result.held[max(1, int(len(self.result.held) * WARM_UP)) :]
        if not complete or len(warm) < 2:
            return
        before, after = growth(warm)
        if after > max(before * GROWTH, before + LEAST_GROWTH_BYTES):
            self.result.add(Problem(f"{self._seed}:*", "memory", f"{before / 2**20:.0f} MiB, then {after / 2**20:.0f} MiB", ""))
        for name in ("files", "threads"):
            first, last = getattr(warm[0], name), getattr(warm[-1], name)
            if last > first + SLACK:
                self.result.add(Problem(f"{self._seed}:*", name, f"{first}, then {last}", ""))


def sent(case: Case) -> str:
    """What a case sends, for people."""
    if isinstance(case, GrpcCase):
        text = " ".join([case.method, *(repr(message[:400]) for message in case.messages[:4])])
    else:
        text = " | ".join(repr(piece[:700]) for piece in case.pieces)
    return text[:1500]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
