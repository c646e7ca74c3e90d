"""The stages of a job, and on what their workers spend their time: working, waiting for input, or for room behind them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...runtime.artifact.pipeline.shares import State, Totals

READ, DECODE, MODEL, WRITE = "read", "decode", "model", "write"
_LAST_SECONDS = 5.0


class Shares(NamedTuple):
    """Of the time of a stage's workers, from 0 to 1; None is not known. What is missing to 1 is waiting for the images' order,
    and passing things on."""

    busy: float
    starved: float | None = None
    blocked: float | None = None

    @classmethod
    def of(cls, spent: Totals, seconds: float) -> Shares:
        """What of so many seconds, of all workers together, was spent so."""
        return cls(*(min(1.0, one / seconds) if seconds > 0 else 0.0 for one in spent))


class StageReport(NamedTuple):
    """One stage now: its workers, its shares since the start and over the last seconds, images a second over the last seconds,
    and of the queue in front of it how many items it holds and has room for. None is not known, or not there. An `inner` one is
    a process within the stage before it."""

    name: str
    shares: Shares
    recent: Shares | None = None
    workers: int | None = None
    rate: float | None = None
    queue: tuple[int, int] | None = None
    inner: bool = False


class Busy:
    """Who knows how busy the stages are since it was made: a `Clock`, or what the workers of a cluster report."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._begin

    def shares(self) -> dict[str, Shares]:
        """Of each stage since the start, in their order; empty as long as nobody knows."""
        raise NotImplementedError

    def report(self) -> list[StageReport]:
        """How the stages stand, each followed by those within it. Called again and again, by one thread."""
        return [StageReport(name, shares) for name, shares in self.shares().items()]

    def parts(self) -> list[StageReport]:
        """How the processes of a model that is a pipeline stand."""
        return []

    def bottleneck(self) -> str:
        """The stage that the others wait for; "" when nobody knows."""
        return find_bottleneck(self.shares())


def find_bottleneck(stages: Mapping[str, Shares]) -> str:
    """The stage that is busy while the one before it is blocked and the one behind it starved; the busiest where that is not
    known."""
    names, shares = list(stages), list(stages.values())

    def signs(number: int) -> float:
        before = shares[number - 1].blocked if number else None
        behind = shares[number + 1].starved if number + 1 < len(shares) else None
        # Who has no neighbor there is neither better nor worse for it.
        return shares[number].busy + sum(0.5 if sign is None else sign for sign in (before, behind))

    return names[max(range(len(names)), key=signs)] if names else ""


class StageClock:
    """Adds up the seconds of a stage's workers, of which each is working or idle; from any thread.

    Idle ones are starved while the stage waits for input, else blocked while it waits for room. `items` counts what was done.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.items = 0
        self._lock = threading.Lock()
        self._since = time.perf_counter()
        self._inside = [0] * len(State)
        self._seconds = [0.0] * len(State)

    @contextlib.contextmanager
    def spend(self, state: State, items: int = 0) -> Iterator[None]:
        """Inside the block one worker is busy, or the stage waits for input or room; when it ends well, `items` are done."""
        self._change(state, 1, 0)
        done = 0
        try:
            yield
            done = items
        finally:
            self._change(state, -1, done)

    def read(self) -> Totals:
        """Seconds of all workers together, until now."""
        with self._lock:
            self._advance()
            return Totals(*self._seconds)

    def _change(self, state: State, by: int, items: int) -> None:
        with self._lock:
            self._advance()
            self._inside[state] += by
            self.items += items

    def _advance(self) -> None:
        now = time.perf_counter()
        took, self._since = now - self._since, now
        working = min(self._inside[State.BUSY], self.workers)
        self._seconds[State.BUSY] += took * working
        for state in (State.STARVED, State.BLOCKED):
            if self._inside[state]:
                self._seconds[state] += took * (self.workers - working)
                break


class Parts:
    """The processes of a pipeline within the model: what each has spent its time on since this was made."""

    def __init__(self, name: str, totals: Callable[[], Sequence[Totals | None]]) -> None:
        self._name, self._totals = name, totals
        self._before = [one or Totals() for one in totals()]

    def report(self, recent: Sequence[Mapping[str, float] | None]) -> list[StageReport]:
        """Of each that has told, with its shares over the last seconds."""
        reports = []
        for number, (totals, before, now) in enumerate(zip(self._totals(), self._before, recent, strict=True)):
            spent = Totals(*(max(0.0, one - other) for one, other in zip(totals or before, before, strict=True)))
            if whole := sum(spent):
                last = Shares(**now) if now is not None else None
                reports.append(StageReport(f"{self._name} {number}", Shares.of(spent, whole), last, workers=1, inner=True))
        return reports


class Clock(Busy):
    """The clocks of all stages. `workers` says how many each has.

    `source` is that of the thread that goes through archives and Parquet files, which is a worker of reading where there are
    any, as its other threads are where images lie in files of their own. `parts` tells of the processes within the model.
    """

    def __init__(self, workers: Mapping[str, int], parts: Callable[[], list[StageReport]] = list) -> None:
        super().__init__()
        self.stages = {name: StageClock(count) for name, count in workers.items()}
        self.source = StageClock(1)
        self.fill: dict[str, Callable[[], tuple[int, int]]] = {}
        self._parts = parts
        self._seen: deque[tuple[float, dict[StageClock, tuple[Totals, int]]]] = deque([(self.elapsed, self._read())])

    def work(self, stage: str, items: int = 0) -> contextlib.AbstractContextManager[None]:
        """Counts what happens inside the block as work of one worker of the stage; from any thread."""
        return self.stages[stage].spend(State.BUSY, items)

    def parts(self) -> list[StageReport]:
        return self._parts()

    def shares(self) -> dict[str, Shares]:
        read, elapsed = self._read(), self.elapsed
        return {name: _together({clock: read[clock][0] for clock in self._clocks(name, read)}, elapsed) for name in self.stages}

    def report(self) -> list[StageReport]:
        elapsed, read = self.elapsed, self._read()
        while len(self._seen) > 1 and self._seen[1][0] <= elapsed - _LAST_SECONDS:
            self._seen.popleft()
        (then, first), shares = self._seen[0], self.shares()
        self._seen.append((elapsed, read))
        seconds = max(elapsed - then, 1e-9)
        reports = []
        for name in self.stages:
            clocks = self._clocks(name, read)
            spent = {clock: _difference(read[clock][0], first[clock][0]) for clock in clocks}
            items = sum(read[clock][1] - first[clock][1] for clock in clocks)
            reports.append(
                StageReport(
                    name,
                    shares[name],
                    _together(spent, seconds),
                    sum(clock.workers for clock in clocks),
                    items / seconds,
                    self.fill[name]() if name in self.fill else None,
                )
            )
            if name == MODEL:
                reports += self.parts()
        return reports

    def _read(self) -> dict[StageClock, tuple[Totals, int]]:
        return {clock: (clock.read(), clock.items) for clock in (self.source, *self.stages.values())}

    def _clocks(self, name: str, read: Mapping[StageClock, tuple[Totals, int]]) -> list[StageClock]:
        """Those of a stage that have anything to do in this job."""
        clocks = [self.source, self.stages[name]] if name == READ else [self.stages[name]]
        return [clock for clock in clocks if read[clock][0].busy] or clocks[-1:]


def _difference(last: Totals, first: Totals) -> Totals:
    return Totals(*(one - other for one, other in zip(last, first, strict=True)))


def _together(spent: Mapping[StageClock, Totals], seconds: float) -> Shares:
    workers = sum(clock.workers for clock in spent)
    return Shares.of(Totals(*map(sum, zip(*spent.values(), strict=True))), seconds * workers)
