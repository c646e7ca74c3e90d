"""Nothing is lost in the simulation, whatever fails, and the same seed gives the same."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmarks.scale.balancer import Balancing, Failure
from tests.benchmarks.scale.model import Distribution, ServerSpec, Speeds, constant
from tests.benchmarks.scale.simulation import Cluster, closed, opened, sustainable
from tests.benchmarks.simulation.traffic import poisson

VARIED = Distribution.of([0.004 + 0.0001 * step for step in range(30)])
SPEC = ServerSpec(
    speeds=Speeds(cores=2, together=(1.0, 0.9), beside=((0.6, 0.6), (0.5, 0.5))),
    batch={1: VARIED, 4: Distribution.of([0.012, 0.013, 0.016])},
    decode=Distribution.of([0.001, 0.002, 0.004]),
    handling=0.0003,
    handing_over=0.0002,
    max_queue=32,
)


@st.composite
def clusters(draw):
    count = draw(st.integers(1, 5))
    failures = [
        Failure(
            draw(st.floats(0, 1)),
            tuple(draw(st.sets(st.integers(0, count - 1), min_size=1))),
            draw(st.floats(0.01, 0.7)),
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    balancing = Balancing(
        choice=draw(st.sampled_from(["least", "turns"])),
        retries=draw(st.integers(0, 2)),
        probe=draw(st.sampled_from([0.0, 0.05, 0.5])),
    )
    spec = dataclasses.replace(SPEC, gpu=draw(st.booleans()), instances=draw(st.integers(1, 2)))
    return Cluster(spec=spec, servers=count, failures=tuple(failures), balancing=balancing)


@settings(max_examples=30)
@given(clusters(), st.floats(20, 1500), st.sampled_from([0.03, 0.2, float("inf")]), st.integers(0, 3))
def test_every_request_has_one_outcome_whatever_fails(cluster, rate, timeout, seed):
    arrivals = poisson(rate, 1.2, seed=seed)
    result = opened(cluster, arrivals, timeout=timeout, seed=seed)
    assert sorted(one.due for one in result.records) == arrivals  # each once, none lost, none twice
    assert set(result.outcomes) <= {"answered", "refused", "dropped", "expired", "failed"}
    assert all(one.finished >= one.due for one in result.records)
    if not cluster.failures:
        assert result.outcomes["failed"] == 0
    again = opened(cluster, arrivals, timeout=timeout, seed=seed)
    assert again.records == result.records


@settings(max_examples=20)
@given(clusters(), st.integers(1, 40))
def test_clients_of_a_closed_loop_always_get_an_outcome(cluster, connections):
    result = closed(cluster, connections=connections, seconds=0.5, warm_up=0.2)
    assert set(result.outcomes) <= {"answered", "refused", "failed"}
    begun = [one.due for one in result.records]
    assert len(begun) >= connections
    # No client has two under way, and all go on to the end.
    times = sorted([(one.due, 1) for one in result.records] + [(one.finished, -1) for one in result.records])
    under_way, most = 0, 0
    for _, change in times:
        under_way += change
        most = max(most, under_way)
    assert under_way == 0
    assert most <= connections


def test_seeds_differ():
    cluster = Cluster(spec=SPEC)
    first, second = (closed(cluster, connections=4, seconds=1.0, seed=seed) for seed in (0, 1))
    assert first.records != second.records
    assert first.rate == pytest.approx(second.rate, rel=0.1)


def test_what_is_under_way_at_a_failure_is_lost_or_sent_once_more():
    arrivals = poisson(200.0, 3.0, seed=1)
    failure = Failure(1.0, (0,), 1.0)
    outcomes = {}
    for retries in (0, 1):
        balancing = Balancing(retries=retries, probe=0.0)
        cluster = Cluster(spec=SPEC, servers=3, failures=(failure,), balancing=balancing)
        outcomes[retries] = opened(cluster, arrivals, seed=2).outcomes
    assert outcomes[0]["failed"] > 0
    assert outcomes[1] == {"answered": len(arrivals)}


def test_requests_fail_until_the_balancer_knows():
    arrivals = poisson(300.0, 3.0, seed=1)
    lost = []
    for probe in (0.0, 0.5):
        cluster = Cluster(
            spec=SPEC,
            servers=3,
            failures=(Failure(1.0, (0,), 1.0),),
            balancing=Balancing(choice="turns", retries=0, probe=probe),
        )
        lost.append(opened(cluster, arrivals).outcomes["failed"])
    assert lost[1] - lost[0] == pytest.approx(300 / 3 * 0.5, rel=0.3)  # a third of what comes in half a second


def test_nobody_is_there():
    cluster = Cluster(spec=SPEC, failures=(Failure(0.0, (0,), 1.0),))
    result = opened(cluster, [0.1, 1.9, 2.1])  # down for a second, and a second more until that is known
    assert [one.outcome for one in result.records] == ["failed", "failed", "answered"]


def test_overload_is_refused_and_costs_little_goodput():
    cluster = Cluster(spec=SPEC, client=0.0001)
    most = closed(cluster, connections=16, seconds=5.0).rate
    result = opened(cluster, poisson(2 * most, 10.0), timeout=0.4, warm_up=1.0)
    assert result.goodput(0.5) > 0.8 * most
    assert result.outcomes["refused"] > 0.3 * len(result.records)


@pytest.mark.slow  # by how much: test_queueing
def test_more_servers_carry_more():
    spec = dataclasses.replace(SPEC, batch={1: constant(0.005), 4: constant(0.013)})
    one, three = (sustainable(Cluster(spec=spec, servers=count), limit=0.1, requests=1500, start=100.0) for count in (1, 3))
    assert 2.7 * one < three < 3.6 * one
    assert sustainable(Cluster(spec=spec), limit=0.0001, requests=100, start=1.0) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [lambda: Failure(-1.0, (0,), 1.0), lambda: Balancing(retries=-1), lambda: Balancing(choice="best"),
     lambda: Cluster(spec=SPEC, servers=1, failures=(Failure(0.0, (1,), 1.0),))],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="needs|must|not negative"):
        wrong()
