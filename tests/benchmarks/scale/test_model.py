"""What the simulation is told: distributions by quantiles, speeds of what runs side by side."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.scale.model import SHARES, Distribution, ServerSpec, Speeds, constant


def test_a_distribution_gives_back_what_it_was_made_of():
    source = random.Random(3)
    samples = [source.lognormvariate(-5.0, 0.4) for _ in range(4000)]
    kept = Distribution.of(samples)
    drawn = [kept.draw(source) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(statistics.fmean(samples), rel=0.02)
    for share in (0.05, 0.5, 0.9, 0.99):
        assert sorted(drawn)[int(share * len(drawn))] == pytest.approx(sorted(samples)[int(share * len(samples))], rel=0.04)
    assert kept.median == pytest.approx(statistics.median(samples))
    assert min(samples) <= min(drawn) <= max(drawn) <= max(samples)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50))
def test_of_any_samples(samples):
    kept = Distribution.of(samples)
    assert kept.quantiles[0] == min(samples)
    assert kept.quantiles[-1] == max(samples)
    assert min(samples) - 1e-9 <= kept.mean <= max(samples) + 1e-9
    again = Distribution.from_json(kept.to_json())
    assert again.quantiles == pytest.approx(kept.quantiles, abs=1e-6)


def test_what_is_no_distribution():
    with pytest.raises(ValueError, match="needs samples"):
        Distribution.of([])
    with pytest.raises(ValueError, match="rising quantiles"):
        Distribution(tuple(reversed([float(number) for number in range(len(SHARES))])))


def test_speeds_as_measured_and_beyond():
    speeds = Speeds(cores=2, together=(1.0, 0.9), beside=((0.7, 0.6), (0.5, 0.45)))
    assert speeds.at(1, 0) == (1.0, 0.0)
    assert speeds.at(2, 0) == (0.9, 0.0)
    assert speeds.at(4, 0) == (pytest.approx(0.45), 0.0)  # four threads on two cores
    assert speeds.at(0, 1) == (0.0, 1.0)
    assert speeds.at(0, 2) == (0.0, 0.5)
    assert speeds.at(1, 1) == (pytest.approx(0.7), pytest.approx(0.6))
    assert speeds.at(2, 1) == (pytest.approx(0.5), pytest.approx(0.45))
    # Two more threads: six on two cores, where four were measured.
    assert speeds.at(4, 1) == (pytest.approx(0.5 * 4 / 6), pytest.approx(0.45 * 4 / 6))


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_ideal_cores_lose_nothing(cores):
    speeds = Speeds.ideal(cores)
    for threads in range(1, 40):
        assert threads * speeds.at(threads, 0)[0] == pytest.approx(min(threads, cores))
    thread, batch = speeds.at(1, 1)
    assert thread + cores * batch == pytest.approx(cores)


def test_impossible_servers_are_refused(spec):
    with pytest.raises(ValueError, match="at least 1"):
        ServerSpec(speeds=spec.speeds, batch=spec.batch, decode=spec.decode, handling=0.0, decoders=0)
    with pytest.raises(ValueError, match="buckets"):
        ServerSpec(speeds=spec.speeds, batch={1: constant(1.0)}, profile={2: 1.0}, decode=spec.decode, handling=0.0)
    with pytest.raises(ValueError, match="not negative"):
        ServerSpec(speeds=spec.speeds, batch={}, decode=spec.decode, handling=0.0)
