"""How many images a candidate loses, and what that says of all."""

import numpy as np
import pytest

from headrace.runtime.artifact.losses import Losses, losses, one_of_few, too_few_to_tell
from headrace.runtime.base.task import Head

SCORES = np.eye(4, dtype=np.float32)[np.arange(100) % 4]
OTHER = np.where(np.arange(100)[:, None] < 3, np.roll(SCORES, 1, axis=1), SCORES)


def head(kind, **more):
    return Head(output="y", kind=kind, **more)


def lost(kind, wanted, given, labels=None, **more):
    found = losses(head(kind, **more), wanted, given, labels, cosine=0.9, places=0.98)
    return None if found is None else (found.rows, found.lost, found.won, found.what)


def test_an_image_is_lost_by_what_its_output_is_for():
    assert lost("single-label", SCORES, OTHER) == (100, 3, None, "agreement")
    assert lost("multi-label", SCORES, OTHER, thresholds=(0.6,) * 4) == (100, 3, None, "agreement")
    assert lost("embedding", SCORES, OTHER) == (100, 3, None, "agreement")
    maps = np.stack([SCORES, -SCORES], axis=1).reshape(100, 2, 2, 2)
    assert lost("dense", maps, np.where(np.arange(100)[:, None, None, None] < 2, -maps, maps)) == (100, 2, None, "agreement")
    assert lost("raw", SCORES, OTHER) is None
    assert lost("dense", SCORES, OTHER) is None


def test_with_labels_what_was_right_is_lost_and_what_was_wrong_is_won():
    right = SCORES.argmax(axis=1)
    assert lost("single-label", SCORES, OTHER, right) == (100, 3, 0, "accuracy")
    assert lost("single-label", SCORES, OTHER, OTHER.argmax(axis=1)) == (100, 0, 3, "accuracy")
    assert lost("single-label", SCORES, OTHER, (right + 2) % 4) == (100, 0, 0, "accuracy")
    assert lost("multi-label", SCORES, OTHER, SCORES.astype(int), thresholds=(0.6,) * 4) == (100, 3, 0, "accuracy")


def test_what_images_show_and_how_many_would_show_it():
    few = Losses(72, 0, None, "agreement")
    assert few.bound(0.05) == pytest.approx(4.075, abs=0.01)
    assert few.beyond(5, 0.05) is None
    shown = "72 images show a loss of at most 4.08 points of agreement, the budget is 1"
    assert few.beyond(1, 0.05) == f"{shown}; about 299 like these would show less"
    assert Losses(72, 2, None, "agreement").beyond(1, 0.05).endswith("the budget is 1")  # which more of these would not show
    assert Losses(2000, 20, 15, "accuracy").bound(0.05) < Losses(2000, 20, 0, "accuracy").bound(0.05)


def test_one_of_few_is_one_more_than_won():
    assert one_of_few(Losses(144, 1, 0, "accuracy"), 0.99)
    assert one_of_few(Losses(144, 3, 2, "accuracy"), 0.99)
    assert not one_of_few(Losses(144, 2, 0, "accuracy"), 0.99)
    assert not one_of_few(Losses(299, 1, 0, "accuracy"), 0.99)
    assert one_of_few(Losses(298, 1, 0, "accuracy"), 0.99)


def test_flips_are_no_wonder_among_few_images_where_they_are_close_calls():
    random = np.random.default_rng(0)
    scores = 10 * np.eye(4)[np.arange(597) % 4] + 0.01 * random.normal(size=(597, 4))
    scores[0] = [1.0, 0.999, 0, 0]
    given = scores + 0.001 * random.normal(size=scores.shape)
    given[0] = [1.0, 1.0005, 0, 0]
    assert too_few_to_tell(scores, given, 0.995)
    assert not too_few_to_tell(
        np.concatenate([scores, scores[1:2]]), np.concatenate([given, given[1:2]]), 0.995
    )  # 598 would show it
    far = given.copy()
    far[1] = np.roll(far[1], 1)
    assert not too_few_to_tell(scores, far, 0.995)
