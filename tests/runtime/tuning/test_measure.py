import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.errors import BackendError
from headrace.runtime.tuning.measure import Samples, measure


class Sleeper:
    """A session that takes a known time, by the clock of `measure`, which nothing else moves."""

    now = 0.0

    def __init__(self, seconds, log=None):
        self.seconds, self.log = seconds, log

    def run(self, inputs):
        if self.log is not None:
            self.log.append(self)
        Sleeper.now += self.seconds
        return list(inputs)

    def close(self):
        pass


ROWS = [np.zeros((1, 3), np.float32)]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """On a machine with other work a real sleep takes as long as it likes, also three times what another takes."""
    monkeypatch.setattr(Sleeper, "now", 0.0)
    clock = SimpleNamespace(perf_counter=lambda: Sleeper.now, monotonic=lambda: Sleeper.now)
    monkeypatch.setattr(importlib.import_module("headrace.runtime.tuning.measure"), "time", clock)


def test_the_faster_one_has_the_smaller_median_and_the_hopeless_one_stops_early():
    fast, near, slow = measure([Sleeper(0.004), Sleeper(0.007), Sleeper(0.03)], ROWS, seconds=30)
    assert fast.median_ms < near.median_ms < slow.median_ms
    assert [one.median_ms for one in (fast, near, slow)] == pytest.approx([4, 7, 30])
    assert len(slow.seconds) == 3
    assert len(fast.seconds) >= 7


class Wavering(Sleeper):
    """Takes longer and shorter by turns, by that share."""

    def __init__(self, seconds, share):
        super().__init__(seconds)
        self.share, self.calls = share, 0

    def run(self, inputs):
        self.calls += 1
        Sleeper.now += self.seconds * (1 + self.share * (-1) ** (self.calls // 2))
        return list(inputs)


@pytest.mark.parametrize(("slower", "share", "rounds"), [(1.02, 0.005, 7), (1.02, 0.2, 25), (1.05, 0.1, 25), (1.2, 0.005, 7)])
def test_what_is_surely_as_good_is_not_measured_on_but_what_may_be_better_is(slower, share, rounds):
    first, second = measure([Wavering(0.01, share), Wavering(0.01 * slower, share)], ROWS, seconds=30)
    assert (len(first.seconds), len(second.seconds)) == (rounds, rounds)


@pytest.mark.parametrize(("length", "share", "rounds"), [(0.01, 0.01, 3), (0.01, 0.2, 7), (0.11, 0.2, 4), (1.0, 0.2, 3)])
def test_beside_other_processes_a_second_more_is_taken_for_the_usual_rounds(length, share, rounds):
    first, _ = measure([Wavering(length, share), Wavering(1.1 * length, share)], ROWS, seconds=0)
    assert len(first.seconds) == rounds


def test_sessions_take_turns_in_a_changing_order():
    log = []
    sessions = [Sleeper(0.003, log), Sleeper(0.003, log)]
    measure(sessions, ROWS, seconds=0)
    assert log[2::2] == log[3::2], "each settles before it is timed"
    turns = log[2::2]
    rounds = [turns[start : start + 2] for start in range(0, 6, 2)]
    assert all(set(turn) == set(sessions) for turn in rounds)
    assert rounds[0] != rounds[1]


def test_three_rounds_are_made_even_without_time():
    (samples,) = measure([Sleeper(0.003)], ROWS, seconds=0)
    assert len(samples.seconds) == 3


@pytest.mark.parametrize(
    ("grown", "leaks"),
    [
        ([], False),
        ([9e6, 9e6], False),  # too few to say
        ([9e6, 0, 0, 0], False),  # what a library allocates once
        ([9e6, 3e6, 3e6, 0, 0, 0, 0, 0], False),
        ([0, 1e4, 1e4, 1e4], False),
        ([0, 3e6, 3e6, 3e6], True),
        ([0, 3e6, 0, 3e6, 3e6, 3e6, 3e6, 3e6, 3e6], True),
    ],
)
def test_memory_that_grows_with_every_call_is_a_leak(grown, leaks):
    assert (Samples(grown=grown).leak is not None) == leaks


class Growing(Sleeper):
    """Keeps two megabytes of each of its first calls."""

    memory = 0

    def __init__(self, calls):
        super().__init__(0.003)
        self.calls = calls

    def run(self, inputs):
        if self.calls:
            self.calls -= 1
            Growing.memory += 1 << 21
        return super().run(inputs)


@pytest.mark.parametrize(("calls", "rounds", "leaks"), [(7, 4, False), (100, 7, True)])
def test_what_grows_at_first_is_watched_for_longer_before_it_is_called_a_leak(monkeypatch, calls, rounds, leaks):
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=Growing.memory))
    monkeypatch.setattr("psutil.Process", lambda: process)
    (samples,) = measure([Growing(calls)], ROWS, seconds=0)
    assert len(samples.seconds) == rounds
    assert (samples.leak is not None) == leaks


def test_spread_is_the_interquartile_range():
    assert Samples([0.001, 0.002, 0.003, 0.004, 0.005]).spread_ms == 2.0


class Holding(Sleeper):
    """One whose device computes in less time than it takes to copy the rows there."""

    def __init__(self, seconds, on_device):
        super().__init__(seconds)
        self.on_device = on_device

    def held(self, inputs):
        if isinstance(self.on_device, BackendError):
            raise self.on_device

        def compute():
            Sleeper.now += self.on_device

        return compute if self.on_device else None


def test_rows_lie_on_the_device_where_all_can_have_them_there():
    fast, slow = measure([Holding(0.1, 0.004), Holding(0.1, 0.005)], ROWS, seconds=30)
    assert (fast.median_ms, slow.median_ms) == pytest.approx((4, 5))


@pytest.mark.parametrize("other", [Sleeper(0.09), Holding(0.09, None), Holding(0.09, BackendError("no memory"))])
def test_where_one_cannot_have_them_there_all_are_measured_with_the_copies(other):
    first, second = measure([Holding(0.1, 0.004), other], ROWS, seconds=30)
    assert (first.median_ms, second.median_ms) == pytest.approx((100, 90))
