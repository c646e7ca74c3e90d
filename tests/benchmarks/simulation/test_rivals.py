"""The policies of other servers decide as their literature says."""

from dataclasses import dataclass

import pytest

from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import Dispatch, Reject, Wait
from tests.benchmarks.simulation.rivals import AdditiveIncrease, EarlyDrop, FixedWindow
from tests.benchmarks.simulation.simulate import Machine, simulate
from tests.benchmarks.simulation.traffic import mixed, poisson

TABLE = LatencyTable({1: 0.010, 2: 0.011, 4: 0.012, 8: 0.014, 16: 0.020})


@dataclass
class Request:
    rows: int = 1
    deadline: float = 100.0
    queued: float = 0.0
    priority: int = 100


def queue(count, **fields):
    return [Request(**fields) for _ in range(count)]


def test_a_fixed_window_waits_for_its_delay_or_a_preferred_size():
    policy = FixedWindow(delay=0.005, preferred=(4, 8))
    assert policy.decide(0.0, [], TABLE, free=1) == Wait()
    assert policy.decide(0.001, queue(3), TABLE, free=1) == Wait(0.005)
    assert policy.decide(0.005, queue(3), TABLE, free=1) == Dispatch(3, 4)
    assert policy.decide(0.001, queue(4), TABLE, free=1) == Dispatch(4, 4)
    assert policy.decide(0.001, queue(11), TABLE, free=1) == Dispatch(8, 8)  # the largest preferred size there is
    assert policy.decide(0.001, queue(16), TABLE, free=1) == Dispatch(16, 16)
    assert policy.decide(0.001, queue(20), TABLE, free=1) == Dispatch(16, 16)
    assert FixedWindow(delay=0.0).decide(0.0, queue(3), TABLE, free=1) == Dispatch(3, 4)
    assert policy.decide(0.001, queue(4), TABLE, free=0) == Wait()
    small = FixedWindow(delay=0.0, largest=4, queue_timeout=0.01)
    assert small.decide(0.009, queue(9), TABLE, free=1) == Dispatch(4, 4)
    assert small.decide(0.011, queue(9), TABLE, free=1) == Reject()
    assert small.decide(0.009, [Request(rows=7)], TABLE, free=1) == Dispatch(1, 8)


def test_additive_increase_grows_by_one_and_is_cut_by_a_tenth():
    policy = AdditiveIncrease(objective=0.015)
    assert policy.decide(0.0, queue(9), TABLE, free=1) == Dispatch(1, 1)
    for _ in range(9):
        policy.ran(int(policy.limit), 0.012)
    assert policy.limit == 10
    policy.ran(3, 0.012)  # no full batch says nothing
    assert policy.limit == 10
    policy.ran(10, 0.02)
    assert policy.limit == pytest.approx(9.0)
    assert policy.decide(0.0, queue(12), TABLE, free=1) == Dispatch(9, 16)
    for _ in range(100):
        policy.ran(1, 1.0)
    assert policy.decide(0.0, [Request(rows=4)], TABLE, free=1) == Dispatch(1, 4)  # whole requests, whatever the limit


def test_additive_increase_settles_where_a_batch_takes_the_objective():
    policy = AdditiveIncrease(objective=0.015)
    simulate(policy, mixed(poisson(2000.0, 3.0)), Machine(profile={b: 0.005 + 0.001 * b for b in range(1, 33)}), ran=policy.ran)
    assert 8 <= policy.limit <= 11


def test_early_drop_slides_its_window_past_those_that_would_hold_it_up():
    policy = EarlyDrop(size=16)
    assert policy.decide(0.0, [Request(deadline=0.019), *queue(15)], TABLE, free=1) == Reject()
    assert policy.decide(0.0, [Request(deadline=0.021), *queue(20)], TABLE, free=1) == Dispatch(16, 16)
    assert policy.decide(0.0, [Request(deadline=0.0121), *queue(2)], TABLE, free=1) == Dispatch(3, 4)
    assert policy.decide(0.0, queue(3), TABLE, free=0) == Wait()


def test_they_admit_until_the_queue_is_full():
    for policy in (FixedWindow(delay=0.0), AdditiveIncrease(objective=1.0), EarlyDrop(size=1)):
        arguments = {"rows": 1, "deadline": 0.0, "ahead": [], "ahead_rows": 0, "limit": 5, "busy_until": [9.0], "table": TABLE}
        assert policy.admit(1.0, waiting=4, **arguments) is None
        assert policy.admit(1.0, waiting=5, **arguments).full
