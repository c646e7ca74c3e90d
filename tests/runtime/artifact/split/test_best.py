import numpy as np
import pytest

from headrace.runtime.artifact.agreement import best_classes
from headrace.runtime.artifact.parity import SCORES
from headrace.runtime.artifact.split.best import best_of_part, merged


def of_parts(scores, bounds, count):
    firsts = [0, *bounds]
    parts = [best_of_part(scores[:, first:end], count) for first, end in zip(firsts, [*bounds, None], strict=True)]
    return merged(parts, firsts, count)


def same_as_whole(scores, bounds, count):
    classes, probabilities = of_parts(scores, bounds, count)
    known, wanted = best_classes(SCORES, scores, count)
    assert classes.dtype == np.int64
    assert probabilities.dtype == np.float64
    np.testing.assert_array_equal(classes, known)
    np.testing.assert_allclose(probabilities, wanted, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 5, 16])
@pytest.mark.parametrize(
    ("classes", "bounds"), [(2, [1]), (10, [1, 9]), (101, [33, 67]), (1000, [125 * n for n in range(1, 8)])]
)
@pytest.mark.parametrize("count", [1, 3, 20, 1000])
def test_it_is_what_the_whole_has(rows, classes, bounds, count):
    scores = np.random.default_rng(classes + rows).normal(0, 5, (rows, classes)).astype(np.float32)
    same_as_whole(scores, bounds, min(count, classes))


@pytest.mark.parametrize("count", [1, 4, 20, 30])
def test_of_equal_scores_the_first_class_is_first(count):
    random = np.random.default_rng(3)
    same_as_whole(random.integers(0, 3, (50, 30)).astype(np.float32), [7, 20], count)
    same_as_whole(np.zeros((3, 30), np.float32), [7, 20], count)


@pytest.mark.parametrize("ruled_out", [slice(0, 7), slice(7, 20), slice(20, 30), slice(0, 20), slice(3, 25)])
def test_a_part_whose_classes_are_all_ruled_out(ruled_out):
    for size in (1.0, 1e3, 1e30):
        scores = np.random.default_rng(4).normal(0, size, (4, 30)).astype(np.float32)
        scores[:, ruled_out] = -np.inf
        same_as_whole(scores, [7, 20], 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(slice(None), slice(None)), (1, 0), (1, 8), (slice(None), slice(7, 20))])
def test_what_is_no_number_has_no_probability_that_is_one(value, place):
    scores = np.random.default_rng(5).normal(0, 5, (4, 30)).astype(np.float32)
    scores[place] = value
    same_as_whole(scores, [7, 20], 3)


def test_large_scores_do_not_overflow():
    scores = np.random.default_rng(6).normal(0, 1e4, (4, 3000)).astype(np.float32)
    same_as_whole(scores, [1000, 2000], 5)
