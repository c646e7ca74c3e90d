"""Distances between answers and what is expected, and orders of classes found in them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.runtime.artifact.agreement import softmax
from headrace.runtime.base.task import Head
from headrace.serving.verify.answers import Row, from_scores
from headrace.serving.verify.scores import Answers, Refusal, Scale, distances, find_order, reordered, residual, ways

SCORES = np.random.default_rng(2).normal(0, 3, (30, 6))
ORDER = (2, 0, 1, 5, 4, 3)


def top(values, count):
    """A row that has the values of the best classes alone."""
    kept = np.full(len(values), np.nan)
    best = np.argsort(-values)[:count]
    kept[best] = values[best]
    return Row(kept, int(best[0]))


def first(values):
    return Row(np.full(len(values), np.nan), int(values.argmax()))


def test_equal_is_zero_and_the_scale_is_what_tells_images_apart():
    answers = Answers([from_scores(row) for row in SCORES])
    scale = Scale.of(answers, SCORES)
    assert residual(distances(answers, SCORES, scale)) == 0
    noise = np.random.default_rng(0).normal(0, 0.1 * scale.signal, SCORES.shape)
    assert 0.08 < residual(distances(answers, SCORES + noise, scale)) < 0.12


def test_logarithms_show_what_probabilities_hide():
    """Of a class that is sure either way only the logarithm tells."""
    sure, other = softmax(8 * SCORES), softmax(8 * SCORES + np.array([0, 0, 0, 0, 0, 4.0]))
    answers = Answers([from_scores(row) for row in other])
    scale = Scale.of(answers, sure)
    assert scale.logarithms
    assert residual(distances(answers, sure, scale)) > 0.02


@pytest.mark.parametrize("digits", [2, 3, 4])
def test_rounding_is_forgiven_and_nothing_more(digits):
    probabilities = softmax(SCORES)
    answers = Answers([from_scores(row.round(digits)) for row in probabilities])
    scale = Scale.of(answers, probabilities)
    assert distances(answers, probabilities, scale).max() == 0
    assert distances(answers, softmax(1.2 * SCORES), scale).max() > 0.01


def test_answers_of_ones_forgive_nothing():
    answers = Answers([from_scores(np.ones(6))] * 30)
    assert distances(answers, softmax(SCORES), Scale.of(answers, softmax(SCORES))).min() > 0.1


def test_a_class_alone_is_right_or_wrong_and_no_answer_is_neither():
    rows = [
        first(SCORES[0]),
        first(-SCORES[1]),
        Refusal("500"),
        Row(np.full(6, np.nan), None),
        Row(np.full(6, np.nan), None, unknown=("x",)),
    ]
    answers = Answers(rows)
    np.testing.assert_array_equal(distances(answers, SCORES[:5], Scale.of(answers, SCORES[:5])), [0, 1, np.nan, np.nan, 1])
    assert residual(np.array([np.nan])) == float("inf")


@pytest.mark.parametrize("seen", [from_scores, lambda row: top(row, 3), first], ids=["all", "three", "one"])
def test_the_order_of_classes_is_found(seen):
    answers = Answers([seen(row) for row in reordered(SCORES, ORDER)])
    scale = Scale.of(answers, SCORES)
    found = find_order(answers, SCORES, scale)
    assert found is not None
    assert all(one in (-1, wanted) for one, wanted in zip(found, ORDER, strict=True))
    assert residual(distances(answers, reordered(SCORES, found), scale)) == 0


@pytest.mark.parametrize("seen", [from_scores, lambda row: top(row, 3), first], ids=["all", "three", "one"])
def test_no_order_is_found_in_right_answers_or_in_anothers(seen):
    right = Answers([seen(row) for row in SCORES])
    assert find_order(right, SCORES, Scale.of(right, SCORES)) is None
    other = np.random.default_rng(8).normal(0, 3, SCORES.shape)
    answers = Answers([seen(row) for row in other])
    scale = Scale.of(answers, SCORES)
    found = find_order(answers, SCORES, scale)
    assert found is None or residual(distances(answers, reordered(SCORES, found), scale)) > 0.5


def test_a_refusal_hides_no_order():
    answers = Answers([Refusal("500"), *(from_scores(row) for row in reordered(SCORES, ORDER)[1:])])
    assert find_order(answers, SCORES, Scale.of(answers, SCORES)) == ORDER


@pytest.mark.parametrize("probabilities", [True, False])
@pytest.mark.parametrize("upload", [True, False])
def test_ways_have_names_of_their_own(probabilities, upload):
    for kind in ("", "probability", "score"):
        right, wrong = ways(Head(output="scores", kind="single-label", probabilities=probabilities), upload=upload, kind=kind)
        names = [way.name for way in (*right, *wrong)]
        assert len(set(names)) == len(names)
