"""What must hold for the batcher's policy whatever the traffic: properties, in virtual time."""

import dataclasses
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.serving.batching.policy import BatchPolicy, Wait
from tests.benchmarks.simulation.simulate import Machine, simulate
from tests.benchmarks.simulation.traffic import Arrival, bursts, mixed, poisson

# A GPU-like table, where larger batches are far more efficient, and a CPU-like one, where they are not.
STEEP = {1: 0.010, 2: 0.011, 4: 0.012, 8: 0.014, 16: 0.020}
FLAT = {1: 0.010, 2: 0.020, 4: 0.040, 8: 0.080, 16: 0.160}


class Watched(BatchPolicy):
    """The policy, with what must hold for every single decision."""

    def decide(self, now, queue, table, *, free, coming=0, instances=1):
        decision = super().decide(now, queue, table, free=free, coming=coming, instances=instances)
        if isinstance(decision, Wait) and queue and free:
            # Work conserving: a free device leaves requests waiting only for company that is on its way, and not for long.
            assert coming > 0
            assert decision.until is not None
            assert now < decision.until <= min(waiting.queued for waiting in queue) + self.max_delay
        return decision


@st.composite
def tables(draw):
    """Latency tables in which more rows never take less time."""
    buckets = sorted(draw(st.sets(st.sampled_from([1, 2, 4, 8, 16, 32]), min_size=1)))
    fixed, row = draw(st.floats(1e-4, 0.05)), draw(st.floats(0.0, 0.02))
    return {bucket: fixed + row * bucket for bucket in buckets}


TIMEOUTS, ROWS = st.floats(0.001, 2.0), st.integers(1, 8)


@st.composite
def loads(draw, timeouts=TIMEOUTS, rows=ROWS):
    gaps = draw(st.lists(st.floats(0, 0.05), min_size=1, max_size=60))
    at, arrivals = 0.0, []
    for gap in gaps:
        at += gap
        arrivals.append(Arrival(at, draw(rows), draw(timeouts), draw(st.sampled_from([0, 0, 0, 1, 200]))))
    return arrivals


@st.composite
def machines(draw):
    return Machine(
        profile=draw(tables()),
        instances=draw(st.integers(1, 3)),
        decode_seconds=draw(st.sampled_from([0.0, 0.0, 0.002])),
        decoders=draw(st.sampled_from([None, 1, 2])),
        max_queue=draw(st.sampled_from([4, 256])),
    )


@settings(max_examples=150)
@given(loads(), machines(), st.integers(0, 3))
def test_whatever_comes_is_answered_in_time_or_told(arrivals, machine, seed):
    largest = max(machine.profile)
    arrivals = [one for one in arrivals if one.rows <= largest]
    done = simulate(Watched(), arrivals, machine, seed=seed)
    assert len(done.requests) == len(arrivals)
    assert done.outcomes["waiting"] == 0  # none is lost
    assert sum(done.outcomes.values()) == len(arrivals)
    answered = [request for batch in done.batches for request in batch.requests]
    assert len(answered) == len(set(map(id, answered))) == done.outcomes["answered"]  # none is run twice
    # A batch takes exactly as long here as the table says, so nobody is answered late.
    assert all(request.on_time for request in answered)
    for batch in done.batches:
        assert sum(request.rows for request in batch.requests) == batch.rows <= batch.bucket
    for instance in range(machine.instances):  # one batch at a time
        own = [batch for batch in done.batches if batch.instance == instance]
        assert all(first.end <= second.begin for first, second in pairwise(own))


@settings(max_examples=100)
@given(loads(timeouts=st.just(5.0), rows=st.just(1)), machines())
def test_first_come_first_served_within_a_priority(arrivals, machine):
    done = simulate(Watched(), arrivals, machine)
    begin = {id(request): batch.begin for batch in done.batches for request in batch.requests}
    for priority in {request.priority for request in done.requests}:
        same = [request for request in done.requests if request.priority == priority and id(request) in begin]
        starts = [begin[id(request)] for request in sorted(same, key=lambda request: request.queued)]
        assert starts == sorted(starts)


@settings(max_examples=50)
@given(machines(), st.floats(0.0, 1.0), st.integers(1, 8))
def test_a_lone_request_never_waits(machine, at, rows):
    rows = min(rows, max(machine.profile))
    done = simulate(Watched(), [Arrival(at, rows, 10.0)], machine)
    (batch,) = done.batches
    assert batch.begin == pytest.approx(at + rows * machine.decode_seconds)
    assert done.outcomes == {"answered": 1}


@settings(max_examples=30)
@given(loads(), machines(), st.integers(0, 5))
def test_the_same_seed_gives_the_same_result(arrivals, machine, seed):
    noisy = dataclasses.replace(machine, noise=0.2)
    arrivals = [one for one in arrivals if one.rows <= max(machine.profile)]
    first, second = (simulate(BatchPolicy(), arrivals, noisy, seed=seed) for _ in range(2))
    assert first.to_json() == second.to_json()


def test_noise_is_drawn_by_seed_and_keeps_the_mean():
    machine = Machine(profile=STEEP, noise=0.3)
    arrivals = mixed(poisson(40.0, 200.0))
    lengths = []
    for seed in (1, 1, 2):
        done = simulate(BatchPolicy(), arrivals, machine, seed=seed)
        lengths.append([batch.end - batch.begin for batch in done.batches])
    assert lengths[0] == lengths[1] != lengths[2]
    done = simulate(BatchPolicy(), arrivals, machine, seed=1)
    ratio = sum(batch.end - batch.begin for batch in done.batches) / sum(STEEP[batch.bucket] for batch in done.batches)
    assert ratio == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("table", [STEEP, FLAT], ids=["steep", "flat"])
@pytest.mark.parametrize("load", [0.3, 0.9, 3.0])
def test_overload_costs_no_goodput(table, load, instances):
    machine = Machine(profile=table, instances=instances, decode_seconds=0.002, max_queue=4096)
    rate = load * machine.rows_per_second
    done = simulate(Watched(), mixed(poisson(rate, 3000 / rate), timeouts={0.25: 1.0}), machine)
    if load < 1:
        assert done.on_time_share > 0.99
    else:
        assert done.idle_share < 0.03  # the device is always busy,
        assert done.goodput > 0.9 * machine.rows_per_second  # with batches about as good as they can be,
        assert done.outcomes["late"] > 0.9 * (3000 - done.outcomes["answered"])  # and the rest is rejected on arrival


@pytest.mark.parametrize("allowed", [2.5, 3, 4, 8])
def test_goodput_under_twice_the_load_stays_where_deadlines_are_a_few_batches_long(allowed):
    machine = Machine(profile={bucket: 0.002 + 0.0001 * bucket for bucket in (1, 2, 4, 8, 16, 32)}, max_queue=1024)
    arrivals = mixed(bursts(2 * machine.rows_per_second, 1.0), timeouts={allowed * 0.0052: 1.0})
    assert simulate(Watched(), arrivals, machine).goodput > 0.85 * machine.rows_per_second


def test_a_profile_that_flatters_is_corrected_by_what_batches_took():
    machine = Machine(profile=STEEP, slowdown=1.5)
    rate = 2 * machine.rows_per_second
    done = simulate(BatchPolicy(), mixed(poisson(rate, 5.0), timeouts={0.1: 1.0}), machine)
    late = sum(request.outcome == "answered" and not request.on_time for request in done.requests)
    assert late < 0.02 * len(done.requests)
    assert done.goodput > 0.85 * machine.rows_per_second


def test_16_closed_loop_clients_settle_on_large_batches():
    machine = Machine(profile=STEEP, decode_seconds=0.002)
    done = simulate(Watched(max_delay=0.01), [Arrival(0.0)] * 16, machine, follow_ups=4000)
    assert done.outcomes == {"answered": 4016}
    assert done.goodput > 0.8 * machine.rows_per_second


def test_one_closed_loop_client_pays_nothing_for_batching():
    done = simulate(Watched(), [Arrival(0.0)], Machine(profile=STEEP), follow_ups=100)
    assert done.seconds == pytest.approx(101 * STEEP[1])
    assert done.latency(1.0) == pytest.approx(STEEP[1])


def test_more_important_requests_go_first():
    arrivals = mixed(poisson(1000.0, 3.0), timeouts={0.5: 1.0}, priorities={1: 0.2, 0: 0.8})
    done = simulate(Watched(), arrivals, Machine(profile=STEEP, max_queue=4096))
    urgent, others = ([r for r in done.requests if (r.priority == 1) == first] for first in (True, False))
    assert sum(r.on_time for r in urgent) / len(urgent) > 0.99
    assert sum(r.on_time for r in others) / len(others) < 0.95
    mean = [sum(r.finished - r.arrived for r in kind if r.on_time) / len(kind) for kind in (urgent, others)]
    assert mean[0] < mean[1]


def test_a_full_decode_pool_delays_and_a_full_queue_refuses():
    slow = Machine(profile=FLAT, decode_seconds=0.1, decoders=1, max_queue=5)
    done = simulate(BatchPolicy(), [Arrival(0.0)] * 10, slow)
    assert done.outcomes == {"answered": 5, "full": 5}
    assert [round(batch.begin, 3) for batch in done.batches] == [0.1, 0.2, 0.3, 0.4, 0.5]
    tight = simulate(BatchPolicy(), [Arrival(0.0, 1, 0.25)] * 4, slow)
    assert tight.outcomes == {"answered": 2, "expired": 2}


def test_the_figures():
    done = simulate(BatchPolicy(), [Arrival(0.0), Arrival(1.0), Arrival(1.0)], Machine(profile=STEEP))
    assert done.batch_sizes == {1: 3} or done.batch_sizes == {1: 1, 2: 1}
    assert done.latency(0.5) <= done.latency(0.99) == done.latency(1.0)
    assert done.to_json()["requests"] == 3
    nothing = simulate(BatchPolicy(), [], Machine(profile=STEEP))
    assert nothing.goodput == 0
    assert math.isnan(nothing.latency(0.5))


@pytest.mark.parametrize("wrong", [{"instances": 0}, {"slowdown": 0.0}, {"noise": -1.0}, {"decoders": 0}, {"max_queue": 0}])
def test_impossible_machines_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        Machine(profile=STEEP, **wrong)
