"""Rows that every machine makes alike, and what their answers tell."""

import hashlib

import numpy as np
import pytest

from headrace.runtime.artifact.known_answers import (
    ROWS,
    differs,
    exchanged,
    known_rows,
    of_another,
    record,
    recorded_span,
    span_of,
    unlike,
)
from headrace.specs import Signature, TensorSpec


def signature(*inputs):
    specs = tuple(TensorSpec(name=f"x{at}", dtype=dtype, shape=("batch", *shape)) for at, (dtype, shape) in enumerate(inputs))
    return Signature(inputs=specs, outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 5)),))


def test_the_rows_are_these_on_every_machine():
    """Other rows would make every recorded answer wrong."""
    floats, pixels = known_rows(signature(("float32", (3, 9, 7)), ("uint8", (9, 7, 3))))
    assert (floats.shape, floats.dtype, pixels.shape, pixels.dtype) == ((ROWS, 3, 9, 7), np.float32, (ROWS, 9, 7, 3), np.uint8)
    digests = [hashlib.sha256(value.astype("<f4").tobytes()).hexdigest()[:16] for value in (floats, pixels)]
    assert digests == DIGESTS
    assert -2 <= floats.min() < -1.5 < 1.5 < floats.max() <= 2
    assert pixels.min() < 30
    assert pixels.max() > 225
    assert len(np.unique(floats.reshape(ROWS, -1), axis=0)) == ROWS


DIGESTS = ["8bd246131bf668c3", "b56099342052e95b"]


def test_floats_are_like_the_images_that_judged_the_model():
    """Numbers beyond those that int8 took its ranges from tell nothing apart."""
    images = np.linspace(0.0, 0.5, 2**22, dtype=np.float32).reshape(2, 2, 1024, 1024)
    images[0, 0, 0, 1] = 1e6
    low, high = span_of([images])
    assert (low, high) == (pytest.approx(0.005, rel=0.01), pytest.approx(0.495, rel=0.01))
    floats, pixels = known_rows(signature(("float32", (3, 9, 7)), ("uint8", (9, 7, 3))), span_of([images]))
    assert low <= floats.min() < 0.05
    assert 0.45 < floats.max() <= high
    assert pixels.max() > 225
    assert recorded_span({"values": [], "span": [0, 0.5]}) == (0.0, 0.5)


@pytest.mark.parametrize(
    "images", [[], [np.ones((2, 3))], [np.array([[1.0, np.inf]])], [np.ones((0, 3))], [np.arange(4)], [np.eye(2), np.eye(2)]]
)
def test_images_that_tell_no_span(images):
    assert span_of(images) is None


@pytest.mark.parametrize("span", [[1, 0], [0, 0], [0, "nan"], [0], [0, 1, 2], "x", 3, {"a": 1}])
def test_a_span_that_is_none_is_refused(span):
    with pytest.raises((ValueError, TypeError)):
        recorded_span({"span": span})


def test_what_may_be_an_index_is_not_guessed():
    assert known_rows(signature(("int64", (4,)))) is None
    assert known_rows(signature(("float32", (4,)), ("bool", (4,)))) is None


@pytest.mark.parametrize("shape", [(), (1,), (200,), (1, 1, 1)])
def test_rows_of_other_shapes(shape):
    (rows,) = known_rows(signature(("float32", shape)))
    assert rows.shape == (ROWS, *shape)
    assert len(np.unique(rows.reshape(ROWS, -1), axis=0)) == ROWS


SCORES = np.random.default_rng(0).normal(size=(ROWS, 1000)).astype(np.float32)


def test_other_rounding_is_the_same_answer_and_another_model_is_not():
    recorded = record(SCORES, 1e-5)
    assert len(recorded["values"]) == ROWS
    assert len(recorded["values"][0]) == 64
    rounding = np.random.default_rng(1).normal(size=SCORES.shape).astype(np.float32)
    assert differs(recorded, SCORES + 0.03 * rounding) is None
    assert "off by" in differs(recorded, SCORES + 0.1 * rounding)
    assert differs(recorded, 1.1 * SCORES) is not None
    assert differs(recorded, SCORES[::-1]) is not None
    assert differs(recorded, SCORES * np.nan) is not None
    assert "have 42 values, 384 were recorded" in differs(recorded, SCORES[:, :7])


def test_the_recorded_values_are_spread_over_the_row_and_seven_digits_long():
    output = np.arange(ROWS)[:, None] + np.arange(190, dtype=np.float32) / 3
    recorded = record(output.reshape(ROWS, 19, 10), 1e-5)["values"]
    assert recorded[0][:2] == [0.0, 1.0]
    assert recorded[5][-1] == 68.0
    assert recorded[0][2] == pytest.approx(2.0, abs=1e-6)
    assert [len(row) for row in recorded] == [64] * ROWS


@pytest.mark.parametrize(
    ("output", "noise"),
    [
        (SCORES, 0.1),
        (np.ones((ROWS, 5), np.float32), 0.0),
        (SCORES * np.nan, 0.0),
        (np.where(SCORES > 0, SCORES, np.inf), 0.0),
        (np.arange(ROWS)[:, None], 0.0),
        (np.zeros((ROWS, 0), np.float32), 0.0),
        (np.tile(np.arange(5, dtype=np.float32), (ROWS, 1)), 0.0),  # values that differ, rows that do not
        (1000 + np.arange(ROWS, dtype=np.float32)[:, None] / 100, 0.0),
    ],
)
def test_what_tells_nothing_is_not_recorded(output, noise):
    assert record(output, noise) is None


def test_what_tells_a_little_is_recorded():
    assert record(10 + np.arange(ROWS, dtype=np.float32)[:, None] / 100, 4e-4) is not None
    assert record(SCORES, 0.01) is not None


def test_all_outputs_tell_rows_apart():
    alike = np.ones((ROWS, 3))
    order = [0, 2, 1, 3, 4, 5]
    assert exchanged([alike, SCORES], [alike, SCORES]) is None
    assert exchanged([alike, SCORES], [alike, SCORES[order]]) == 1
    assert exchanged([SCORES[:, :5].reshape(ROWS, 5, 1), alike], [SCORES[order][:, :5].reshape(ROWS, 5, 1), alike]) == 1


def test_a_row_of_another_request_is_found():
    assert exchanged([SCORES], [SCORES + np.float32(0.1)]) is None
    assert exchanged([SCORES], [SCORES[[0, 1, 3, 2, 4, 5]]]) == 2
    assert exchanged([SCORES], [np.concatenate([SCORES[:5], SCORES[4:5]])]) == 5
    assert exchanged([SCORES[:4]], [SCORES[:4]]) is None


def test_rows_that_come_out_alike_are_not_told_apart():
    alike = np.repeat(SCORES[:1], ROWS, axis=0) + np.float32(1e-6) * SCORES
    alike[0] += 1
    assert exchanged([alike], [alike[[0, 2, 1, 3, 4, 5]]]) is None
    assert exchanged([alike], [alike[[1, 0, 2, 3, 4, 5]]]) == 0
    assert exchanged([np.ones((ROWS, 1), int)], [np.ones((ROWS, 1), int)]) is None


def test_a_lossy_answer_is_told_from_another_model_s():
    recorded = record(SCORES, 1e-5)
    noise = np.random.default_rng(1).normal(size=SCORES.shape).astype(np.float32)
    for lossy in (SCORES + 0.5 * noise, 0.5 * SCORES + 3, np.clip(SCORES, -0.3, 0.3)):
        assert of_another(recorded, lossy) is None
    for other in (noise, SCORES[::-1], 0 * SCORES):
        assert "answers that are nearest to their own" in of_another(recorded, other)
    assert of_another(recorded, SCORES * np.nan) == "answers of known rows are not finite"
    assert of_another(recorded, SCORES[[0, 1, 2, 3, 5, 4]]) is None
    assert "of 6 known rows 3 got" in of_another(recorded, SCORES[[0, 1, 2, 4, 5, 3]])
    assert "have 42 values, 384 were recorded" in of_another(recorded, SCORES[:, :7])


def alike(wanted, given, limit=0.01, alone=None):
    return unlike([SCORES if alone is None else alone], [wanted], [given], limit)


def test_rows_may_be_off_by_a_share_of_what_tells_the_known_ones_apart():
    near = SCORES[:1] + 0.001 * SCORES[1:3]  # all but alike, as the images of a film
    assert alike(near, near + 0.009) is None
    assert "of output 0 is off by 1.10e-02, more than 9.1" in alike(near, near + 0.011)
    assert "row 1 of" in alike(near, near + np.array([[0], [0.5]], np.float32))
    large = np.full((2, 1000), 1000, np.float32)
    assert alike(large, large + 0.9) is None
    assert "more than 1.00e+00" in alike(large, large + 1.1)
    assert alike(SCORES[:2], SCORES[:2], limit=0.0) is None


def test_what_is_not_finite_must_be_so_by_both_and_the_rest_is_compared():
    broken = np.where(np.arange(1000) == 3, np.nan, SCORES[:2]).astype(np.float32)
    assert alike(broken, broken) is None
    assert alike(broken, SCORES[:2]) is None
    assert alike(SCORES[:2], broken) == "output 0 is not finite"
    assert "is off by" in alike(broken, broken + 1)
    assert alike(broken, broken, alone=SCORES * np.nan) is None


def test_other_forms_and_whole_numbers():
    assert alike(SCORES, SCORES[:, :5]) == "output 0 is float32[6, 5], not float32[6, 1000]"
    assert alike(SCORES, SCORES.astype(np.float64)) == "output 0 is float64[6, 1000], not float32[6, 1000]"
    best = SCORES.argmax(axis=1)
    alone = [SCORES, best]
    assert unlike(alone, [SCORES, best], [SCORES, best + np.array([0, 0, 0, 1, 1, 1])], 0.01) is None
    assert "output 1 agrees in 33%" in unlike(alone, [SCORES, best], [SCORES, best + np.array([0, 0, 1, 1, 1, 1])], 0.01)
