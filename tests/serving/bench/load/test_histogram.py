"""Latencies in buckets."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.serving.bench.load.histogram import GROWTH, Histogram


def histogram_of(seconds):
    made = Histogram()
    for one in seconds:
        made.record(one)
    return made


def test_percentiles_are_nearest_rank_and_at_most_a_bucket_too_high():
    made = histogram_of([number / 1e3 for number in range(1, 101)])
    for share, exact in ((0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)):
        assert exact * (1 - 1e-9) <= made.percentile_ms(share) <= exact * GROWTH
    assert made.percentile_ms(1.0) == 100
    assert list(made.summary_ms()) == ["p50", "p90", "p99", "max"]
    assert math.isnan(Histogram().percentile_ms(0.5))
    assert Histogram().summary_ms() == {}


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=50), st.lists(st.floats(0, 1e4), max_size=50), st.floats(0, 1))
def test_merging_is_counting_together(first, second, share):
    merged = histogram_of(first)
    merged.merge(histogram_of(second))
    together = histogram_of(first + second)
    assert len(merged) == len(first) + len(second)
    assert merged.to_json() == together.to_json()
    assert merged.percentile_ms(share) == together.percentile_ms(share)


def test_counting_those_within_a_limit():
    made = histogram_of([0.001, 0.010, 0.010, 0.5])
    assert [made.within(limit) for limit in (0.0005, 0.002, 0.0101, 0.4, 1.0)] == [0, 1, 3, 3, 4]


def test_json_keeps_every_count():
    source = random.Random(0)
    made = histogram_of([10 ** source.uniform(-7, 3) for _ in range(5000)])
    read = Histogram.from_json(made.to_json())
    assert read.to_json() == made.to_json()
    assert read.summary_ms() == pytest.approx(made.summary_ms())
