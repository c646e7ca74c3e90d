import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ArtifactError
from headrace.runtime.artifact.pipeline.partition import partition


def slowest(seconds, cuts):
    return max(sum(seconds[first:end]) for first, end in itertools.pairwise((0, *cuts, len(seconds))))


@given(
    seconds=st.lists(st.integers(1, 100), min_size=4, max_size=9),
    sizes=st.lists(st.integers(1, 50), min_size=9, max_size=9),
    stages=st.integers(1, 4),
)
def test_nothing_is_better(seconds, sizes, stages):
    """Against all partitions there are."""
    places = list(range(1, len(seconds)))
    cuts = partition(seconds, places, sizes[: len(places)], stages)
    every = [list(one) for one in itertools.combinations(places, stages - 1)]
    assert cuts in every
    best = min(slowest(seconds, one) for one in every)
    assert slowest(seconds, cuts) <= 1.05 * best * (1 + 1e-9)

    def crossing(one):
        return sum(sizes[place - 1] for place in one)

    assert crossing(cuts) == min(crossing(one) for one in every if slowest(seconds, one) <= 1.05 * best * (1 - 1e-9)) or any(
        slowest(seconds, one) == pytest.approx(1.05 * best) for one in every
    )


def test_only_the_places_are_taken():
    assert partition([1.0] * 10, [2, 3, 9], [1, 1, 1], 2) == [3]
    assert partition([1.0] * 10, [2, 3, 9], [1, 1, 1], 4) == [2, 3, 9]


def test_of_equal_ones_the_cut_with_fewer_bytes():
    seconds = [10.0, 0.1, 0.1, 10.0]
    assert partition(seconds, [1, 2, 3], [900, 900, 30], 2) == [3]
    assert partition(seconds, [1, 2, 3], [900, 20, 30], 2) == [2]


def test_of_equal_ones_with_equal_bytes_the_quickest():
    assert partition([1.0, 0.02, 0.02, 1.0], [1, 2, 3], [5, 5, 5], 2) == [2]


def test_nodes_that_take_no_time_are_cut_too():
    assert partition([0.0, 0.0, 0.0], [1, 2], [4, 3], 2) == [2]


def test_one_slow_node_is_a_stage_by_itself():
    assert partition([10, 10, 50, 10, 10], [1, 2, 3, 4], [1] * 4, 3) == [2, 3]


def test_many_nodes_and_stages():
    seconds = np.random.default_rng(0).random(600)
    cuts = partition(list(seconds), list(range(1, 600)), [1] * 599, 64)
    assert len(set(cuts)) == 63
    assert slowest(seconds, cuts) < 1.5 * seconds.sum() / 64


@pytest.mark.parametrize("stages", [4, 9])
def test_too_few_places_are_an_error(stages):
    with pytest.raises(ArtifactError, match=r"2 places, into up to 3 stages, not"):
        partition([1.0] * 5, [2, 3], [1, 1], stages)
