"""On what stages spend their time, by clocks that only the tests move."""

from types import SimpleNamespace

import pytest

from headrace.runtime.artifact.pipeline.shares import State, Totals
from headrace.serving.offline import stages
from headrace.serving.offline.stages import Busy, Clock, Parts, Shares, StageClock, find_bottleneck


@pytest.fixture
def passes(monkeypatch):
    """passes(2) lets 2 seconds pass."""
    now = [100.0]
    monkeypatch.setattr(stages, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def advance(seconds):
        now[0] += seconds

    return advance


def test_idle_workers_are_starved_or_blocked_and_never_both(passes):
    clock = StageClock(4)
    with clock.spend(State.BUSY, 8):
        passes(1)  # three are idle, and nobody says why
        with clock.spend(State.STARVED):
            passes(2)
            with clock.spend(State.BLOCKED):  # room would help nobody as long as there is nothing to do
                passes(4)
        with clock.spend(State.BLOCKED), clock.spend(State.BUSY):
            passes(8)
    assert clock.read() == Totals(busy=1 + 2 + 4 + 16, starved=6 + 12, blocked=16)
    assert sum(clock.read()) == 4 * 15 - 3
    assert clock.items == 8


def test_more_work_than_workers_is_no_more_than_their_time(passes):
    clock = StageClock(1)
    with clock.spend(State.BUSY), clock.spend(State.BUSY), clock.spend(State.STARVED):
        passes(3)
    assert clock.read() == Totals(busy=3)


def test_what_fails_is_not_done_and_ends_all_the_same(passes):
    def fail():
        passes(1)
        raise OSError("x")

    clock = StageClock(1)
    with pytest.raises(OSError, match="x"), clock.spend(State.BUSY, 5):
        fail()
    passes(1)
    assert (clock.items, clock.read().busy) == (0, 1)


def test_shares_are_those_since_the_start_and_of_the_last_seconds(passes):
    clock = Clock({"read": 2, "model": 1})
    with clock.work("model", 30):
        passes(10)
    [read, model] = clock.report()
    assert (model.shares, model.recent, model.rate) == (Shares(1, 0, 0), Shares(1, 0, 0), 3)
    assert read.shares == Shares(0, 0, 0)
    for _ in range(10):
        with clock.stages["model"].spend(State.STARVED), clock.work("read", 2):
            passes(1)
        [read, model] = clock.report()
    assert (model.shares, model.recent, model.rate) == (Shares(0.5, 0.5, 0), Shares(0, 1, 0), 0)
    assert (read.shares.busy, read.recent.busy, read.rate, read.workers) == (0.25, 0.5, 2, 2)


@pytest.mark.parametrize(("archives", "files", "workers", "share"), [(1, 0, 1, 1), (0, 1, 4, 0.25), (1, 1, 5, 0.4)])
def test_reading_has_the_workers_that_the_source_has_work_for(passes, archives, files, workers, share):
    clock = Clock({"read": 4, "model": 1})
    source = clock.source.spend(State.BUSY if archives else State.BLOCKED)
    with source, clock.stages["read"].spend(State.BUSY if files else State.STARVED, 30 * files):
        passes(1)
    clock.source.items += 12 * archives
    read = clock.report()[0]
    assert read.rate == 30 * files + 12 * archives
    assert (read.workers, read.shares.busy, clock.shares()["read"].busy) == (workers, share, share)


@pytest.mark.parametrize(
    ("read", "decode", "model", "write", "slow"),
    [
        ((1, 0, 0), (0.1, 0.9, 0), (0.1, 0.9, 0), (0.0, 1, 0), "read"),
        ((0.25, 0.75, 0), (0.1, 0.9, 0), (0.1, 0.9, 0), (0.0, 1, 0), "read"),  # one archive, and idle readers of files
        ((0.1, 0, 0.9), (1, 0, 0), (0.3, 0.7, 0), (0.1, 0.9, 0), "decode"),
        ((0.1, 0, 0.9), (0.2, 0, 0.8), (0.98, 0.02, 0), (0.1, 0.9, 0), "model"),
        ((0.1, 0, 0.9), (0.2, 0, 0.8), (0.2, 0, 0.8), (1, 0, 0), "write"),
        ((0.1, 0.2, 0), (0.6, 0, 0), (0.9, 0, 0), (0.1, 0, 0), "model"),  # nobody waits: the busiest
        ((0.12, 0.3, 0.3), (0.39, 0, 0.15), (0.84, 0.16, 0), (0.15, 0.8, 0), "model"),  # a machine with too much to do
    ],
)
def test_the_bottleneck_is_where_waiting_turns(read, decode, model, write, slow):
    found = {"read": read, "decode": decode, "model": model, "write": write}
    assert find_bottleneck({name: Shares(*shares) for name, shares in found.items()}) == slow


def test_where_only_busy_is_known_the_busiest_is_the_bottleneck():
    assert find_bottleneck({"read": Shares(0.2), "decode": Shares(0.9), "model": Shares(0.5)}) == "decode"
    assert find_bottleneck({}) == ""

    class Told(Busy):
        def shares(self):
            return {"read": Shares(0.5)}

    assert [(one.name, one.shares, one.recent) for one in Told().report()] == [("read", Shares(0.5), None)]


def test_parts_are_told_from_when_the_job_began():
    told = [Totals(5, 5, 0), None]
    parts = Parts("stage", lambda: list(told))
    assert parts.report([None, None]) == []
    told[:] = [Totals(6, 5, 3), None]
    [one] = parts.report([{"busy": 0.1, "starved": 0.2, "blocked": 0.7}, None])
    assert (one.name, one.shares, one.recent, one.inner) == ("stage 0", Shares(0.25, 0, 0.75), Shares(0.1, 0.2, 0.7), True)
    told[:] = [None, Totals(1, 0, 1)]  # the first was lost, and the other has told meanwhile
    assert [(one.name, one.shares) for one in parts.report([None, None])] == [("stage 1", Shares(0.5, 0, 0.5))]
