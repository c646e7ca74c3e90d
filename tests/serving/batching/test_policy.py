"""The batching policy and its latency table in virtual time: no clocks, no threads."""

from dataclasses import dataclass

import numpy as np
import pytest

from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import BatchPolicy, Dispatch, Reject, Rejection, Wait, service_order

# A GPU-like table, where larger batches are far more efficient, and a CPU-like one, where they are not.
STEEP = LatencyTable({1: 0.010, 2: 0.011, 4: 0.012, 8: 0.014, 16: 0.020})
FLAT = LatencyTable({1: 0.010, 2: 0.020, 4: 0.040, 8: 0.080, 16: 0.160})


@dataclass
class Request:
    rows: int = 1
    deadline: float = 100.0
    queued: float = 0.0
    priority: int = 100


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


def test_a_size_that_may_soon_be_quicker_is_formed_until_it_is_known_what_it_came_to():
    table = LatencyTable({1: 0.010, 2: 0.018, 4: 0.050})
    assert table.first_batch(4) == 2
    table.hope(4, 1.05)
    assert table.first_batch(4) == 4
    table.observe(4, 0.050)  # as it was measured, so nothing is slower than the profile
    assert table.factor == pytest.approx(1.0)
    table.quicken(4, 1.0)  # it gained nothing
    assert (table.first_batch(4), table.seconds(4)) == (2, pytest.approx(0.050))
    table.hope(4, 1.05)
    table.quicken(4, 1.5)
    assert (table.first_batch(4), table.seconds(4)) == (4, pytest.approx(0.050 / 1.5))


def test_hope_makes_no_size_slower_than_it_is():
    table = LatencyTable({1: 0.010, 2: 0.011, 4: 0.012})
    table.hope(2, 1.05)
    table.hope(4, 1.05)
    assert [table.seconds(bucket) for bucket in (1, 2, 4)] == pytest.approx([0.010, 0.011, 0.012])


def test_admission_grows_cautious_until_few_are_late():
    """Waits that vary by a fifth more than estimated: about the wanted share of those that it would still admit is late."""
    table, random = LatencyTable({1: 0.01}), np.random.default_rng(5)
    late = []
    for _ in range(20_000):
        in_time = table.caution >= random.normal(1, 0.2)
        table.settle(in_time=in_time)
        late.append(not in_time)
    assert 0.01 < np.mean(late[5000:]) < 0.03
    assert _admit(0.0101, 0, table=table) == Rejection(False, pytest.approx(0.01 * table.caution))
    assert _admit(0.0101 * table.caution, 0, table=table) is None
    for _ in range(200_000):
        table.settle(in_time=True)
    assert table.caution == 1
    for _ in range(10_000):
        table.settle(in_time=False)
    assert table.caution == 2


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
    queue = [Request(deadline=0.05, queued=-1.0), *[Request() for _ in range(15)]]
    assert BatchPolicy().decide(0.0, queue, FLAT, free=1) == Dispatch(4, 4)
    assert BatchPolicy().decide(0.045, queue, FLAT, free=1) == Reject()


def test_multi_row_requests_are_kept_whole():
    queue = [Request(rows=3), Request(rows=6), Request(rows=1)]
    assert BatchPolicy().decide(0.0, queue, STEEP, free=1) == Dispatch(3, 16)
    assert BatchPolicy().decide(0.0, [Request(rows=7), Request(rows=7)], FLAT, free=2) == Dispatch(1, 8)


def test_a_tight_request_is_given_up_only_where_others_come_too_fast_to_wait_for_it():
    slow = [Request(deadline=0.0115, queued=-10.0), Request(deadline=0.5, queued=-1.0)]
    assert BatchPolicy().decide(0.0, slow, STEEP, free=1) == Dispatch(2, 2)
    slow = [Request(deadline=0.0105, queued=-10.0), Request(deadline=0.5, queued=-1.0)]
    assert BatchPolicy().decide(0.0, slow, STEEP, free=1) == Dispatch(1, 1)
    flood = [Request(deadline=0.0105, queued=-0.02), *[Request(deadline=0.05, queued=-0.01) for _ in range(31)]]
    assert BatchPolicy().decide(0.0, flood, STEEP, free=1) == Reject(0)
    assert BatchPolicy().decide(0.0, flood[1:], STEEP, free=1) == Dispatch(16, 16)


def test_the_one_that_is_given_up_is_the_tight_one_and_never_for_less_important_ones():
    lax = [Request(deadline=0.05, queued=-0.01, priority=1) for _ in range(3)]
    tight = Request(deadline=0.0105, queued=-0.01, priority=100)
    flood = [Request(deadline=0.05, queued=-0.01, priority=100) for _ in range(31)]
    assert BatchPolicy().decide(0.0, [*lax, tight, *flood], STEEP, free=1) == Reject(3)
    urgent = Request(deadline=0.0105, queued=-0.01, priority=1)
    assert BatchPolicy().decide(0.0, [urgent, *flood], STEEP, free=1) == Dispatch(1, 1)


def test_batches_are_short_enough_for_those_that_come_next():
    # 16 rows take 20 ms. Whoever comes while they run would be late, where requests allow 30 ms, but not where they allow 50.
    for allowed, size in ((0.050, 16), (0.030, 8)):
        queue = [Request(deadline=allowed, queued=0.0) for _ in range(13)]
        assert BatchPolicy().decide(0.0, queue, STEEP, free=1) == Dispatch(min(13, size), size)
    # But those that wait already do not pay for that.
    together = [Request(deadline=0.0121) for _ in range(4)]
    assert BatchPolicy().decide(0.0, together, STEEP, free=1) == Dispatch(4, 4)
    full = [Request(deadline=0.050, queued=0.0) for _ in range(40)]
    assert BatchPolicy().decide(0.0, full, STEEP, free=1) == Dispatch(16, 16)


def _admit(deadline: float, ahead: int, *, waiting=0, busy=(0.0,), others=100.0, table=STEEP):
    queue = [Request(deadline=others) for _ in range(ahead)]
    return BatchPolicy().admit(
        0.0,
        rows=1,
        deadline=deadline,
        ahead=queue,
        ahead_rows=sum(one.rows for one in queue),
        waiting=waiting,
        limit=256,
        busy_until=busy,
        table=table,
    )


def test_admission():
    assert _admit(0.0101, 0) is None
    assert _admit(0.0099, 0) == Rejection(False, pytest.approx(0.010))
    assert _admit(10.0, 0, waiting=256) == Rejection(True, pytest.approx(0.010))
    # Two full batches are before it.
    assert _admit(0.0499, 32) == Rejection(False, pytest.approx(0.050))
    assert _admit(0.0501, 32) is None
    # With two instances that end at different moments, the third batch is the second of the one that ends first.
    assert _admit(0.0399, 32, busy=(0.010, 0.012)) == Rejection(False, pytest.approx(0.040))
    assert _admit(0.0401, 32, busy=(0.010, 0.012)) is None
    # Those before it that cannot be answered in time themselves take no time.
    assert _admit(0.0499, 32, busy=(0.02,), others=0.03) is None


def test_admission_expects_batches_as_large_as_they_were_of_late():
    table = LatencyTable({1: 0.010, 2: 0.011, 4: 0.012, 8: 0.014, 16: 0.020})
    for _ in range(50):
        table.observe(16, 0.020)
    assert table.recent == pytest.approx(16, rel=0.01)
    assert _admit(0.0599, 32, table=table) == Rejection(False, pytest.approx(0.060))
    # Requests that allow so little are served in batches of 8, which take 14 ms.
    assert _admit(0.0239, 3, busy=(0.010,), table=table) == Rejection(False, pytest.approx(0.024))
    assert _admit(0.0241, 3, busy=(0.010,), table=table) is None
    assert _admit(0.0121, 3, table=table) is None  # nothing runs, so it goes with those that wait


def test_order_is_priority_then_deadline_then_arrival():
    keys = [service_order(0, 5.0, 0), service_order(1, 9.0, 1), service_order(200, 1.0, 2), service_order(100, 5.0, 3)]
    assert sorted(keys) == [keys[1], keys[0], keys[3], keys[2]]


def test_finish_estimate():
    policy = BatchPolicy()
    assert policy.finish_estimate(1.0, 0, 1, [0.0], FLAT) == pytest.approx(1.01)
    assert policy.finish_estimate(1.0, 9, 1, [1.5], FLAT) == pytest.approx(1.6)
    assert policy.finish_estimate(1.0, 18, 1, [1.5, 1.0], FLAT) == pytest.approx(1.1)


def test_a_quick_answer_about_the_steady_size_is_the_long_one():
    """Where every batch leaves time for another, the size that serves most is the one of the profile."""
    draw = np.random.default_rng(2)
    for _ in range(300):
        table = LatencyTable({bucket: float(draw.uniform(0.001, 0.02)) for bucket in (1, 2, 4, 8)})
        table.factor = float(draw.uniform(0.5, 2.0))
        allowed, instances = float(draw.uniform(0.001, 0.1)), int(draw.integers(1, 4))

        def in_time(bucket: int, table=table, allowed=allowed, instances=instances) -> float:
            seconds = table.seconds(bucket)
            return bucket / seconds * min(1.0, max(0.0, instances * (allowed - seconds) / seconds))

        best = table.steady_batch(8, allowed, instances)
        assert in_time(best) == pytest.approx(max(map(in_time, table.buckets)), rel=1e-12)


def test_those_ahead_are_counted_and_not_looked_at_while_all_are_in_time():
    def one_by_one():
        raise AssertionError("each request that comes would cost as much as wait already")
        yield

    arguments = {"rows": 1, "ahead_rows": 200, "waiting": 200, "limit": 256, "busy_until": (0.0,), "table": STEEP}
    assert BatchPolicy().admit(0.0, deadline=100.0, ahead=one_by_one(), **arguments) is None
    assert BatchPolicy().admit(0.0, deadline=100.0, ahead=one_by_one(), **arguments | {"limit": 200}).full


def test_what_is_taken_without_an_estimate_would_be_taken_with_one():
    draw = np.random.default_rng(6)
    for _ in range(2000):
        table = LatencyTable({bucket: float(draw.uniform(0.001, 0.02)) for bucket in (1, 2, 4, 8)})
        table.factor, table.caution = float(draw.uniform(0.5, 2.0)), float(draw.uniform(1.0, 2.0))
        table.recent = float(draw.uniform(0.0, 8.0))
        busy = [float(draw.uniform(-0.1, 0.1)) for _ in range(int(draw.integers(1, 4)))]
        ahead, rows, allowed = int(draw.integers(0, 100)), int(draw.integers(1, 9)), float(draw.uniform(0.001, 3.0))
        bound = max(0.0, *busy) + table.at_most(ahead + rows)
        assert BatchPolicy().finish_estimate(0.0, ahead, rows, busy, table, allowed=allowed) <= bound
