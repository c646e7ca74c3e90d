import numpy as np
import pytest

from headrace.runtime.artifact.agreement import top1_agreement
from headrace.runtime.artifact.parity import (
    Gate,
    ParityRecord,
    beyond,
    compare,
    unusable_reference,
)

GATE = Gate(noise=(1e-6,))


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=(100, 7)).astype(np.float32)


def test_equal_outputs_pass(scores):
    record = compare([scores], [scores.copy()], GATE, batches=[1, 2, 5])
    assert record.passed
    assert (record.max_abs, record.top1_agreement, record.batches) == (0.0, 1.0, (1, 2, 5))


def test_what_was_not_measured_is_none():
    assert ParityRecord(status="not-run").to_json() == {
        "status": "not-run",
        **dict.fromkeys(("max_abs", "top1_agreement", "tolerance", "accuracy_drop", "rms", "top5_agreement", "scale", "why")),
        **dict.fromkeys(("decision_agreement", "cosine", "loss_bound", "confidence", "budget")),
        "rows": 0,
        "batches": [],
    }


def test_two_comparisons_as_one_are_the_worse_of_both():
    good = ParityRecord(status="passed", max_abs=1e-6, top1_agreement=0.9, rows=3)
    better = ParityRecord(status="passed", max_abs=1e-7, top1_agreement=1.0, rows=4, why="on images")
    bad = ParityRecord(status="failed", max_abs=0.5, rows=1, why="off")
    both = good.joined(better)
    assert (both.status, both.max_abs, both.top1_agreement, both.rows, both.why) == ("passed", 1e-6, 0.9, 7, "on images")
    for joined in (better.joined(bad), bad.joined(better)):
        assert (joined.status, joined.max_abs, joined.top1_agreement, joined.why) == ("failed", 0.5, 1.0, "off")


def test_json_round_trip(scores):
    record = compare([scores], [scores], GATE, batches=[1, 2])
    assert ParityRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("error", [5e-3, np.nan, np.inf])
def test_one_wrong_value_fails(scores, error):
    other = scores.copy()
    other[41, 3] += error
    assert compare([scores], [other], GATE).status == "failed"


def test_noise_widens_the_tolerance(scores):
    assert not compare([scores], [scores + np.float32(5e-3)], Gate(noise=(1e-6,))).passed
    assert compare([scores], [scores + np.float32(5e-3)], Gate(noise=(1e-3,))).passed


def test_users_tolerance_replaces_the_calibrated_one(scores):
    other = scores + np.float32(1e-2)
    assert compare([scores], [other], Gate(tolerance=0.1)).passed
    assert not compare([scores], [other], Gate(tolerance=1e-4)).passed


def test_constant_and_input_blind_outputs_never_pass(scores):
    zeros = np.zeros((8, 7), np.float32)
    blind = np.repeat(scores[:1], 8, axis=0)
    for reference in (zeros, blind):
        record = compare([reference], [reference], GATE)
        assert record.status == "failed"
        assert "does not depend on its input" in record.why


def test_noise_as_large_as_the_signal_never_passes(scores):
    record = compare([scores], [scores], Gate(noise=(1.0,)))
    assert record.status == "failed"
    assert "rounding" in record.why


def test_nan_in_the_reference_never_passes(scores):
    scores[0, 0] = np.nan
    assert "NaN" in compare([scores], [scores], GATE).why


def test_other_shape_or_dtype_fails(scores):
    assert "expected" in compare([scores], [scores[:, :6]], GATE).why
    assert "expected" in compare([scores], [scores.astype(np.float64)], GATE).why


def test_a_constant_second_output_is_compared_but_does_not_refuse(scores):
    flat = np.ones((100, 2), np.float32)
    assert compare([scores, flat], [scores, flat], GATE).passed
    assert not compare([scores, flat], [scores, flat * 2], GATE).passed


def test_integer_outputs_must_agree(scores):
    classes = scores.argmax(axis=1)
    assert compare([scores, classes], [scores, classes], GATE).passed
    assert not compare([scores, classes], [scores, (classes + 1) % 7], GATE).passed


def test_a_noisy_model_is_not_called_constant():
    reference = np.array([[1.0, 0.2], [0.8, 0.5]])
    assert "amplifies rounding" in unusable_reference(reference, noise=0.4)
    assert "does not depend on its input" in unusable_reference(np.array([[1.0, 0.2], [1.0, 0.2001]]), noise=1e-3)
    assert unusable_reference(reference, noise=1e-6) is None


def test_the_same_infinity_is_agreement_and_another_is_not(scores):
    masked, other = scores.copy(), scores.copy()
    masked[:, 2], other[:, 2] = -np.inf, np.inf
    assert beyond([masked], [masked.copy()], [1e-3]) is None
    for wrong in (other, scores, np.full_like(scores, np.nan)):
        assert "differs by inf" in beyond([masked], [wrong], [1e-3])


def test_the_numbers_of_the_gate_are_promises():
    gate = Gate()
    assert (gate.agreement, gate.agreement_with_labels, gate.accuracy_points, gate.least_images) == (0.995, 0.99, 0.1, 64)
    assert (gate.relative_error, gate.rms, gate.top5, gate.scale) == (0.05, 0.25, 0.8, 0.05)


def test_two_classes_agree_or_not():
    scores = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    assert top1_agreement(scores, scores[[0, 1, 2, 2]]) == 0.75
    assert top1_agreement(scores[:, :1], scores[:, :1]) is None


def test_records_of_before_are_read():
    old = ParityRecord(status="passed", max_abs=0.1, top1_agreement=1.0).to_json()
    del old["loss_bound"], old["confidence"]
    assert ParityRecord.from_json(old) == ParityRecord(status="passed", max_abs=0.1, top1_agreement=1.0)


def test_of_several_outputs_the_larger_loss_counts():
    one = ParityRecord(status="passed", loss_bound=0.5, confidence=0.95)
    other = ParityRecord(status="passed", loss_bound=0.8, confidence=0.95)
    for record in (one.beside(other), other.beside(one), other.beside(ParityRecord(status="passed"))):
        assert (record.loss_bound, record.confidence) == (0.8, 0.95)
