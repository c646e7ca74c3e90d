"""Inputs that few pictures are, within the range of those that are usual."""

import numpy as np
import pytest

from headrace.runtime.tuning.rare_rows import ROWS, rare_rows, run_rare

PHOTOS = np.random.default_rng(0).normal(size=(16, 3, 8, 6)).astype(np.float32) * np.float32([1, 2, 3]).reshape(3, 1, 1)


def test_the_extremes_are_among_them():
    (rows,) = rare_rows([PHOTOS])
    assert (rows.shape, rows.dtype) == ((ROWS, 3, 8, 6), np.float32)
    low, high = PHOTOS.min(axis=(0, 2, 3)), PHOTOS.max(axis=(0, 2, 3))
    assert (rows.min(axis=(0, 2, 3)) == low).all()
    assert (rows.max(axis=(0, 2, 3)) == high).all()
    plain = [row[:, 0, 0] for row in rows if (np.ptp(row, axis=(1, 2)) == 0).all()]
    for wanted in (low, high, [high[0], low[1], low[2]], [low[0], high[1], low[2]], [low[0], low[1], high[2]], [0, 0, 0]):
        assert any(np.array_equal(colors, np.float32(wanted)) for colors in plain)
    stark = [row for row in rows if (np.abs(np.diff(row, axis=2)) == (high - low)[:, None, None]).all()]
    assert len(stark) == 2
    assert len(np.unique(rows.reshape(ROWS, -1), axis=0)) == ROWS


def test_they_are_the_same_each_time():
    assert np.array_equal(*(rare_rows([PHOTOS])[0] for _ in range(2)))


@pytest.mark.parametrize(
    "usual",
    [
        np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32),
        np.random.default_rng(0).normal(size=(5,)).astype(np.float32),
        np.arange(20, dtype=np.int64).reshape(5, 4),
        np.eye(5, dtype=bool),
        np.ones((2, 1, 1, 1), np.float32),
        np.ones((2, 3, 0), np.float32),
    ],
)
def test_inputs_that_are_no_pictures_stay_in_their_range(usual):
    rows, other = rare_rows([usual, PHOTOS])
    assert (rows.shape, rows.dtype, len(other)) == ((ROWS, *usual.shape[1:]), usual.dtype, ROWS)
    if usual.size:
        assert usual.min() <= rows.min()
        assert rows.max() <= usual.max()


def test_pixels_are_black_and_white_whatever_the_usual_ones_are():
    (rows,) = rare_rows([np.full((4, 3, 5, 5), 100, np.uint8)])
    assert rows.dtype == np.uint8
    assert {0, 255} <= {int(row.min()) for row in rows if np.ptp(row) == 0}


class Recorded:
    """A session that gives its inputs, and how many rows each call had."""

    def __init__(self):
        self.calls = []

    def run(self, inputs):
        self.calls.append(len(inputs[0]))
        return [inputs[0].copy()]


def test_the_extremes_are_run_when_there_is_no_time_and_all_when_there_is():
    for seconds, count in ((0.0, 16), (60.0, ROWS)):
        session = Recorded()
        rare = run_rare(session, [PHOTOS], lambda inputs, outputs: (0.0,), seconds=seconds)
        assert session.calls == [16] * (count // 16)
        assert len(rare.inputs[0]) == count
        assert np.array_equal(rare.inputs[0], rare.outputs[0])


def test_the_others_are_darker_lighter_fainter_and_starker_than_usual():
    (rows,) = rare_rows([PHOTOS])
    drawn = rows[10:].astype(np.float64)
    span = PHOTOS.max() - PHOTOS.min()
    means, contrasts = drawn.mean(axis=(1, 2, 3)), drawn.std(axis=(1, 2, 3))
    assert np.ptp(means) > 0.2 * span
    assert contrasts.min() < 0.4 * PHOTOS.std()
    assert contrasts.max() > 1.3 * PHOTOS.std()


def test_whole_numbers_are_usual_ones_in_another_order():
    usual = np.arange(40, dtype=np.int64).reshape(5, 8)
    (rows,) = rare_rows([usual])
    assert all(set(rows[12:, at]) <= set(usual[:, at]) for at in range(8))


def test_fewer_may_be_asked_for():
    (rows,) = rare_rows([PHOTOS], 16)
    assert rows.shape == (16, 3, 8, 6)
    assert np.array_equal(rows[:9], rare_rows([PHOTOS])[0][:9])
