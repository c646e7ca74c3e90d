"""The batching policy and its latency table in virtual time: no clocks, no threads."""

import heapq
import random
from dataclasses import dataclass

import pytest

from penstock.serving.latency import LatencyTable
from penstock.serving.policy import BatchPolicy, Dispatch, Reject, Wait

# A GPU-like table, where larger batches are far more efficient, and a CPU-like one, where they are not.
STEEP = LatencyTable({1: 0.010, 2: 0.011, 4: 0.012, 8: 0.014, 16: 0.020})
FLAT = LatencyTable({1: 0.010, 2: 0.020, 4: 0.040, 8: 0.080, 16: 0.160})


@dataclass
class Request:
    rows: int = 1
    deadline: float = 100.0
    queued: float = 0.0
    arrived: float = 0.0


def test_table_pads_only_when_that_beats_splitting():
    assert STEEP.first_batch(5) == 8
    assert STEEP.first_batch(9) == 16
    assert STEEP.first_batch(40) == 16
    assert FLAT.first_batch(5) == 4
    assert FLAT.first_batch(3) == 2
    padding_pays_from_7 = LatencyTable({1: 0.01, 8: 0.065})
    assert padding_pays_from_7.first_batch(6) == 1
    assert padding_pays_from_7.first_batch(7) == 8
    assert STEEP.drain_seconds(24) == pytest.approx(0.020 + 8 * 0.020 / 16)
    assert FLAT.drain_seconds(5) == pytest.approx(0.05)


def test_table_learns_how_slow_things_are_today():
    table = LatencyTable({1: 0.01, 4: 0.02})
    for _ in range(200):
        table.observe(4, 0.04)
    assert table.seconds(4) == pytest.approx(0.04, rel=0.01)
    assert table.seconds(1) == pytest.approx(0.02, rel=0.01)
    before = table.seconds(1)
    table.observe(4, 60.0)  # one outlier
    assert table.seconds(1) < 1.2 * before
    for bad in ({}, {0: 1.0}, {1: 0.0}, {1: float("nan")}):
        with pytest.raises(ValueError, match="latency table"):
            LatencyTable(bad)


def test_a_lone_request_never_waits():
    assert BatchPolicy().decide(0.0, [Request()], STEEP, free=1) == Dispatch(1, 1)
    assert BatchPolicy().decide(0.0, [Request(rows=3)], STEEP, free=1) == Dispatch(1, 4)
    assert BatchPolicy().decide(0.0, [], STEEP, free=1) == Wait()
    assert BatchPolicy().decide(0.0, [Request()], STEEP, free=0) == Wait()


def test_waits_for_rows_on_their_way_only_as_long_as_that_saves():
    policy = BatchPolicy(max_delay=0.005)
    decision = policy.decide(1.0, [Request(queued=1.0)], STEEP, free=1, coming=7)
    assert isinstance(decision, Wait)
    assert decision.until == pytest.approx(1.005)
    assert policy.decide(1.006, [Request(queued=1.0)], STEEP, free=1, coming=7) == Dispatch(1, 1)
    assert policy.decide(1.0, [Request(queued=1.0)], FLAT, free=1, coming=7) == Dispatch(1, 1)
    full = [Request(queued=1.0) for _ in range(16)]
    assert policy.decide(1.0, full, STEEP, free=1, coming=7) == Dispatch(16, 16)
    assert policy.decide(1.0, [Request(queued=1.0, deadline=1.02)], STEEP, free=1, coming=7) == Dispatch(1, 1)
    assert policy.decide(1.0, [Request(queued=1.0)], STEEP, free=2, coming=7) == Dispatch(1, 1)


def test_free_instances_share_the_queue():
    queue = [Request() for _ in range(16)]
    assert BatchPolicy().decide(0.0, queue, FLAT, free=2) == Dispatch(8, 8)
    assert BatchPolicy().decide(0.0, queue, FLAT, free=1) == Dispatch(16, 16)


def test_a_batch_is_no_larger_than_its_tightest_deadline_allows():
    queue = [Request(deadline=0.05), *[Request() for _ in range(15)]]
    assert BatchPolicy().decide(0.0, queue, FLAT, free=1) == Dispatch(4, 4)
    assert BatchPolicy().decide(0.045, queue, FLAT, free=1) == Reject()


def test_multi_row_requests_are_kept_whole():
    queue = [Request(rows=3), Request(rows=6), Request(rows=1)]
    assert BatchPolicy().decide(0.0, queue, STEEP, free=1) == Dispatch(3, 16)
    assert BatchPolicy().decide(0.0, [Request(rows=7), Request(rows=7)], FLAT, free=2) == Dispatch(1, 8)


def test_finish_estimate():
    policy = BatchPolicy()
    assert policy.finish_estimate(1.0, 0, 1, [0.0], FLAT) == pytest.approx(1.01)
    assert policy.finish_estimate(1.0, 9, 1, [1.5], FLAT) == pytest.approx(1.6)
    assert policy.finish_estimate(1.0, 18, 1, [1.5, 1.0], FLAT) == pytest.approx(1.1)


def _simulate(policy, table, arrivals, *, timeout=1.0, instances=1, closed_loop=0, decode=0.0, admit=False):
    """Drive the policy through virtual time; returns (answered, late, rejected, busy seconds, end). Arrivals are seconds."""
    events, serial = [], 0

    def push(at, kind, item):
        nonlocal serial
        heapq.heappush(events, (at, serial, kind, item))
        serial += 1

    for at in arrivals:
        push(at, "arrive", None)
    queue, coming, busy, answered, late, rejected, now = [], 0, 0.0, 0, 0, 0, 0.0
    free, busy_until = list(range(instances)), [0.0] * instances
    while events:
        now, _, kind, item = heapq.heappop(events)
        if kind == "arrive":
            estimate = policy.finish_estimate(now, coming + len(queue), 1, busy_until, table)
            if admit and estimate > now + timeout:
                rejected += 1
            else:
                coming += 1
                push(now + decode, "decoded", now)
        elif kind == "decoded":
            coming -= 1
            queue.append(Request(deadline=item + timeout, queued=now, arrived=item))
        elif kind == "done":
            batch, instance = item
            free.append(instance)
            for request in batch:
                answered += 1
                late += now > request.deadline + 1e-9
                if closed_loop > 0:
                    closed_loop -= 1
                    push(now, "arrive", None)
        while free:
            decision = policy.decide(now, queue, table, free=len(free), coming=coming)
            if isinstance(decision, Dispatch):
                batch, queue = queue[: decision.count], queue[decision.count :]
                assert sum(request.rows for request in batch) <= decision.bucket
                instance = free.pop()
                busy += table.seconds(decision.bucket)
                busy_until[instance] = now + table.seconds(decision.bucket)
                push(busy_until[instance], "done", (batch, instance))
            elif isinstance(decision, Reject):
                queue.pop(0)
                rejected += 1
            else:
                assert not queue or decision.until > now, "a free device idles without reason"
                if decision.until is not None:
                    push(decision.until, "tick", None)
                break
    assert not queue
    return answered, late, rejected, busy, now


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("table", [STEEP, FLAT], ids=["steep", "flat"])
@pytest.mark.parametrize("load", [0.3, 0.9, 3.0])
@pytest.mark.parametrize("admit", [True, False])
def test_nothing_answered_is_late_and_nothing_is_lost(table, load, instances, admit):
    source = random.Random(load)
    rate = load * instances * max(bucket / table.seconds(bucket) for bucket in table.buckets)
    arrivals, at = [], 0.0
    for _ in range(3000):
        at += source.expovariate(rate)
        arrivals.append(at)
    answered, late, rejected, busy, end = _simulate(
        BatchPolicy(), table, arrivals, timeout=0.25, instances=instances, decode=0.002, admit=admit
    )
    assert answered + rejected == 3000
    assert late == 0
    if load < 1:
        assert rejected < 30
    else:
        assert busy > 0.97 * instances * (end - 0.01)  # overloaded, the device is always busy,
        assert answered > 0.85 * 3000 / load  # and with batches about as good as they can be


def test_16_closed_loop_clients_settle_on_large_batches():
    best = 16 / STEEP.seconds(16)
    answered, _, _, _, end = _simulate(BatchPolicy(max_delay=0.01), STEEP, [0.0] * 16, closed_loop=4000, decode=0.002)
    assert answered == 4016
    assert answered / end > 0.8 * best


def test_one_closed_loop_client_pays_nothing_for_batching():
    answered, _, _, _, end = _simulate(BatchPolicy(), STEEP, [0.0], closed_loop=100)
    assert end == pytest.approx(answered * STEEP.seconds(1))
