"""Bounds that hold however often one looks."""

import random

import pytest

from headrace.runtime.artifact.sequence import evidence, falls_below, interval


def _alarmed(seed: int, share: float, accepted: float, count: int) -> bool:
    draw, agreed = random.Random(seed), 0
    for number in range(1, count + 1):
        agreed += draw.random() < share
        if falls_below(agreed, number, accepted, 0.05):
            return True
    return False


def test_few_false_alarms_though_one_looks_after_each_image():
    assert sum(_alarmed(seed, 0.995, 0.995, 1500) for seed in range(200)) <= 0.05 * 200


def test_what_is_worse_is_found():
    assert all(_alarmed(seed, 0.95, 0.995, 1500) for seed in range(50))


def test_the_interval_holds_the_share_at_every_moment():
    missed = 0
    for seed in range(100):
        draw, agreed, out = random.Random(seed), 0, False
        for number in range(1, 301):
            agreed += draw.random() < 0.9
            if number % 10 == 0:
                low, high = interval(agreed, number, 0.05)
                out = out or not low <= 0.9 <= high
        missed += out
    assert missed <= 5


@pytest.mark.parametrize(("agreed", "count"), [(0, 1), (1, 1), (7, 10), (0, 50), (50, 50), (9_990, 10_000)])
def test_the_interval_and_the_judgment_say_the_same(agreed, count):
    low, high = interval(agreed, count, 0.05)
    assert 0 <= low <= agreed / count <= high <= 1
    if high < 1:
        assert falls_below(agreed, count, high + 1e-9, 0.05)
        assert not falls_below(agreed, count, high - 1e-6, 0.05)


def test_of_none_nothing_is_known():
    assert interval(0, 0, 0.05) == (0.0, 1.0)
    assert not falls_below(0, 0, 0.995, 0.05)
    with pytest.raises(ValueError, match="3 of 2"):
        evidence(3, 2, 0.5)
