from dataclasses import replace

import numpy as np
import pytest

from headrace.runtime.artifact.lossy_parity import beyond_lossy, compare_lossy, compare_relative, lossy_gate, scale, wrong_scale
from headrace.runtime.artifact.parity import Gate, ParityRecord, compare
from headrace.runtime.base.task import Head

GATE = Gate(noise=(1e-6,))


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=(100, 7)).astype(np.float32)


def test_the_limits_of_a_lossy_precision_are_those_of_its_own_rounding(scores):
    images = np.random.default_rng(1).normal(size=(128, 20)).astype(np.float32)
    turns = np.where(np.arange(len(images)) % 2, 1, -1)[:, None]
    for dtype, most in (("fp16", 0.03), ("bf16", 0.15), ("int8", 0.25), ("fp8", 0.25)):
        for share, passed in ((0.9 * most, True), (1.1 * most, False)):
            noisy = (images * (1 + share * turns)).astype(np.float32)  # off by that share, in the same order
            assert (beyond_lossy([images], [noisy], lossy_gate(dtype)) is None) == passed
            assert compare_lossy(images, noisy, lossy_gate(dtype)).passed == passed


@pytest.mark.parametrize(("dtype", "most"), [("fp16", 0.01), ("bf16", 0.02), ("int8", 0.05), ("fp8", 0.05)])
def test_a_scale_is_told_from_rounding(dtype, most):
    """A tenth of the scale is within the rounding of int8 and bf16 in size, but it is the same for all values."""
    random = np.random.default_rng(1)
    images = (10 + random.normal(size=(128, 20)) + 5 * np.eye(20)[np.arange(128) % 20]).astype(np.float32)
    rounding = random.normal(scale=0.02, size=images.shape)
    for factor, passed in ((1, True), (1 + 0.5 * most, True), (1 - 1.5 * most, False), (1 + 1.5 * most, False)):
        other = (10 + (images - 10 + rounding / 10) * factor).astype(np.float32)
        record = compare_lossy(images, other, lossy_gate(dtype))
        assert record.scale == pytest.approx(factor, abs=1e-3)
        why = beyond_lossy([images], [other], lossy_gate(dtype))
        assert (record.passed, why is None) == (passed, passed)
        assert passed or "times as large" in record.why


def test_few_rows_or_wide_scatter_do_not_tell_a_scale():
    random = np.random.default_rng(4)
    images, scatter = random.normal(size=(2, 64, 5))
    gate = Gate(scale=0.01)
    assert wrong_scale(images[:15], 2 * images[:15], gate) is None
    assert wrong_scale(images[:16], 2 * images[:16], gate) is not None
    slope, error = scale(images, 1.05 * images + scatter)
    assert abs(slope - 1) < 4 * error
    assert wrong_scale(images, 1.05 * images + scatter, gate) is None
    assert scale(images * 0, images) is None
    assert scale(images, images * np.inf) is None


def test_the_standard_error_holds_where_the_values_of_a_row_are_off_together():
    """Over a thousand draws, the slope is about as far from 1 as its error says."""
    random = np.random.default_rng(5)
    off = []
    for _ in range(1000):
        images = random.normal(size=(64, 1)) * np.ones(10)
        slope, error = scale(images, images + 0.3 * random.normal(size=(64, 1)))
        off.append((slope - 1) / error)
    assert 0.85 < np.std(off) < 1.2
    assert np.mean(np.abs(off) > 4) < 0.002


def _flipped(scores, count):
    other = scores.copy()
    other[:count] = -other[:count]
    return other


def test_lossy_without_labels_needs_995_of_1000():
    scores = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    assert compare_lossy(scores, _flipped(scores, 5), GATE).passed
    assert not compare_lossy(scores, _flipped(scores, 6), GATE).passed


def test_lossy_with_labels_is_held_to_accuracy_too():
    scores = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    right, wrong = scores.argmax(axis=1), scores.argmin(axis=1)
    assert not compare_lossy(scores, _flipped(scores, 8), GATE, labels=right).passed  # 0.8 points are lost
    assert compare_lossy(scores, _flipped(scores, 8), GATE, labels=wrong).passed  # nothing is lost: they gain
    assert compare_lossy(scores, _flipped(scores, 1), GATE, labels=right).passed  # exactly 0.1 points
    assert not compare_lossy(scores, _flipped(scores, 11), GATE, labels=wrong).passed  # agreement below 99 %


def test_lossy_needs_images_enough_and_classes_that_differ(scores):
    assert "64" in compare_lossy(scores[:63], scores[:63], GATE).why
    same = np.abs(scores) + np.array([100, 0, 0, 0, 0, 0, 0], np.float32)
    assert "same class" in compare_lossy(same, same, GATE).why
    assert "two class scores" in compare_lossy(scores[:, :1], scores[:, :1], GATE).why


def test_scores_of_a_fully_convolutional_network_are_classes():
    scores = np.random.default_rng(0).normal(size=(1000, 4, 1, 1)).astype(np.float32)
    right = scores.argmax(axis=1)[:, 0, 0]
    assert compare([scores], [scores], GATE).top1_agreement == 1.0
    assert compare_lossy(scores, scores, GATE, labels=right).accuracy_drop == 0.0
    assert compare_lossy(scores, _flipped(scores, 6), GATE).top1_agreement == pytest.approx(0.994)
    assert not compare_lossy(scores, _flipped(scores, 8), GATE, labels=right).passed
    planes = scores.reshape(250, 4, 2, 2)
    assert compare([planes], [planes], GATE).top1_agreement is None


def test_relative_gate_says_what_it_did_not_judge(scores):
    record = compare_relative([scores], [scores * 1.01], GATE)
    assert record.passed
    assert "no real images" in record.why
    assert not compare_relative([scores], [scores * 1.2], GATE).passed


@pytest.fixture
def lossy():
    """Scores of a hundred images and what a lossy candidate makes of them: an error of one per cent."""
    random = np.random.default_rng(4)
    reference = (3 * random.normal(size=(100, 20))).astype(np.float32)
    return reference, (reference + 0.03 * random.normal(size=reference.shape)).astype(np.float32)


def test_the_error_of_lossy_scores_is_in_the_record(lossy):
    record = compare_lossy(*lossy, Gate(agreement=0.9))
    assert record.passed
    assert 0.005 < record.rms < 0.02
    assert record.top5_agreement > 0.9
    assert ParityRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda scores: scores * 1e-6, "root mean square"),
        (lambda scores: np.eye(scores.shape[1], dtype=np.float32)[scores.argmax(1)], "root mean square"),
        (lambda scores: np.exp(scores) / np.exp(scores).sum(1, keepdims=True), "root mean square"),
        (lambda scores: scores + np.float32(5), "root mean square"),
    ],
    ids=["scaled", "one-hot", "softmax", "shifted"],
)
def test_scores_of_another_scale_fail_though_the_best_class_is_the_same(lossy, fault, why):
    reference, candidate = lossy
    record = compare_lossy(reference, fault(candidate).astype(np.float32), Gate(agreement=0.9))
    assert not record.passed
    assert why in record.why


def test_one_row_that_is_not_finite_fails(lossy):
    reference, candidate = lossy
    for broken in (np.nan, np.inf):
        candidate[17] = broken
        record = compare_lossy(reference, candidate, Gate(agreement=0.9))
        assert not record.passed
        assert "1 of 100 rows" in record.why


def test_ranks_below_the_best_class_count(lossy):
    reference, _ = lossy
    best = np.take_along_axis(reference, reference.argmax(1)[:, None], 1)
    shuffled = np.take_along_axis(reference, np.random.default_rng(0).permuted(np.tile(np.arange(20), (100, 1)), axis=1), 1)
    candidate = np.where(reference == best, reference, np.minimum(shuffled, best - 1)).astype(np.float32)
    record = compare_lossy(reference, candidate, Gate(rms=10.0))
    assert record.top1_agreement == 1
    assert not record.passed
    assert "five best classes" in record.why


def sure_of_one(sharpness):
    """Scores of 64 rows over 50 classes, and the same with others' ranks below the best class."""
    random = np.random.default_rng(0)
    reference, other = random.normal(size=(2, 64, 50))
    rows = np.arange(64)
    for scores in (reference, other):
        scores[rows, rows % 50] = sharpness
    return reference.astype(np.float32), other.astype(np.float32)


def test_ranks_of_classes_less_likely_than_a_guess_are_noise():
    reference, other = sure_of_one(sharpness=12.0)
    record = compare_lossy(reference, other, Gate(rms=10.0, scale=10.0))
    assert record.passed
    assert record.top5_agreement == 1


def test_ranks_of_likely_classes_count_where_the_model_is_not_sure():
    reference, other = sure_of_one(sharpness=4.0)
    record = compare_lossy(reference, other, Gate(rms=10.0, scale=10.0))
    assert not record.passed
    assert "likelier than a guess" in record.why


def test_a_class_that_is_lost_among_the_likely_ones_counts_even_if_others_are_noise():
    reference, _ = sure_of_one(sharpness=12.0)
    reference[:, 49] = 11.0  # half as likely as the best, in every row but those whose best it is
    reference[49] = np.roll(reference[48], 1)
    wrong = reference.copy()
    wrong[:, 49] = -3.0
    record = compare_lossy(reference, wrong, Gate(rms=10.0, scale=10.0, agreement=0.9))
    assert not record.passed
    assert record.top5_agreement < 0.6


def test_every_output_is_gated(lossy):
    reference, candidate = lossy
    labels = reference.argmax(1)
    assert beyond_lossy([reference, reference, labels], [candidate, candidate, labels], Gate()) is None
    faults = {
        "output 1: 100 of 100 rows": [candidate, np.full_like(candidate, np.nan), labels],
        "output 1 is off": [candidate, np.zeros_like(candidate), labels],
        "output 2 agrees": [candidate, candidate, labels[::-1]],
        "outputs are": [candidate, candidate[:, :-1], labels],
    }
    for why, outputs in faults.items():
        assert why in beyond_lossy([reference, reference, labels], outputs, Gate())


def test_a_lossy_record_says_what_it_was_held_to_and_how_many_images_there_were():
    images = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    assert "top-1 agreement of at least 99.5% on 80 images" in compare_lossy(images, images, Gate()).why
    labeled = compare_lossy(images, images, Gate(), labels=images.argmax(1))
    asked = "top-1 agreement of at least 99.0% on 80 labeled images, and accuracy"
    assert labeled.why == f"{asked}: at most 3.94 points of accuracy are lost with 95% confidence"
    assert (labeled.accuracy_drop, labeled.confidence) == (0.0, 0.95)
    assert labeled.loss_bound == pytest.approx(100 * (1 - 0.04 ** (1 / 80)))
    alike = compare_lossy(images + 100 * np.eye(6, dtype=np.float32)[2], images + 100 * np.eye(6, dtype=np.float32)[2], Gate())
    assert not alike.passed
    assert (alike.rows, alike.top1_agreement) == (80, 1.0)


def close_calls(count, flips, *, error=0.02, seed=0):
    """Scores of images most of which are clear, and what a candidate makes of them that is off by `error` and turns `flips` of
    the close calls over."""
    random = np.random.default_rng(seed)
    scores = random.normal(0, 0.3, (count, 10))
    best = random.integers(10, size=count)
    scores[np.arange(count), best] = 3
    second = (best + 1) % 10
    scores[np.arange(count) < flips, second[:flips]] = 2.99
    given = scores + error * random.normal(size=scores.shape)
    close = np.arange(flips)
    given[close, second[:flips]], given[close, best[:flips]] = 3.005, 2.985
    return scores.astype(np.float32), given.astype(np.float32), best


@pytest.mark.parametrize(("count", "passed"), [(72, True), (144, True), (199, True), (2000, True)])
def test_a_close_call_among_few_images_is_no_reason_to_refuse(count, passed):
    scores, given, _ = close_calls(count, 1)
    record = compare_lossy(scores, given, lossy_gate("bf16"))
    assert record.passed == passed
    assert record.top1_agreement == pytest.approx(1 - 1 / count)
    assert "points of agreement are lost with 95% confidence" in record.why


def test_what_is_no_close_call_or_too_many_are_refused():
    for flips, passed in ((1, True), (2, False), (3, False)):
        assert compare_lossy(*close_calls(144, flips)[:2], lossy_gate("bf16")).passed == passed
    scores, given, _ = close_calls(144, 0)
    given[5] = np.roll(given[5], 1)  # the same flip, of an image that is clear
    record = compare_lossy(scores, given, lossy_gate("bf16"))
    assert record.why == "top-1 agrees on 99.31% of 144 images, less than 99.5%"


def test_one_flip_by_luck_where_the_error_would_flip_many_is_refused():
    """Half of the images are close calls, and the candidate's error is as large as they are close: it was lucky."""
    random = np.random.default_rng(0)
    scores = random.normal(0, 0.3, (144, 10))
    best = random.integers(10, size=144)
    scores[np.arange(144), best] = 3
    scores[np.arange(144), (best + 1) % 10] = np.where(np.arange(144) % 2, 2.98, 0)
    error = np.zeros_like(scores)
    error[np.arange(144), (best + 2) % 10] = 0.0
    error[::2, :] = 0.05 * random.normal(size=(72, 10))  # of those that it cannot flip
    given = scores + error
    given[1, (best[1] + 1) % 10] += 0.03
    assert (given.argmax(1) != best).sum() == 1
    assert "less than 99.5%" in compare_lossy(scores.astype(np.float32), given.astype(np.float32), lossy_gate("bf16")).why


def test_one_lost_of_few_labeled_images_is_no_reason_to_refuse():
    scores, given, best = close_calls(144, 1)
    record = compare_lossy(scores, given, lossy_gate("bf16"), labels=best)
    assert (record.passed, record.accuracy_drop) == (True, pytest.approx(100 / 144))
    for count in (144, 280, 1000):
        scores, given, best = close_calls(count, 2)
        refused = compare_lossy(scores, given, lossy_gate("bf16"), labels=best)
        assert f"accuracy falls by {200 / count:.2f} points" in refused.why
        won = np.where(np.arange(count) == 1, (best + 1) % 10, best)
        assert compare_lossy(scores, given, lossy_gate("bf16"), labels=won).accuracy_drop == pytest.approx(0)


def test_a_budget_is_kept_to_where_the_images_show_it():
    """300 images without a loss show a loss of at most 0.99 points; with labels they take 321."""
    for count, labeled, passed in ((299, False, True), (298, False, False), (321, True, True), (319, True, False)):
        scores, given, best = close_calls(count, 0)
        record = compare_lossy(scores, given, lossy_gate("bf16", budget=1.0), labels=best if labeled else None)
        assert record.passed == passed, record.why
    shown = "319 images show a loss of at most 1.00 points of accuracy, the budget is 1"
    assert record.why == f"{shown}; about 321 like these would show less"
    scores, given, best = close_calls(1000, 4)
    record = compare_lossy(scores, given, lossy_gate("bf16", budget=1.0))
    assert record.why == "a budget of 1 points on 1000 images: at most 0.91 points of agreement are lost with 95% confidence"
    assert not compare_lossy(scores, given, lossy_gate("bf16", budget=1.0, alpha=0.001)).passed
    assert not compare_lossy(scores, given, lossy_gate("bf16", budget=0.5)).passed
    gained = np.where(np.arange(1000) < 4, (best + 1) % 10, best)  # they were wrong, and are right
    assert compare_lossy(scores, given, lossy_gate("bf16", budget=0.5), labels=gained).accuracy_drop == pytest.approx(-0.4)


def test_a_budget_bounds_what_several_labels_embeddings_and_maps_lose():
    random = np.random.default_rng(0)
    values = random.normal(size=(400, 12)).astype(np.float32)
    turned = values.copy()
    turned[:10] = -turned[:10]  # 2.5 points of the images
    maps = random.normal(size=(400, 3, 4, 4)).astype(np.float32)
    other = maps.copy()
    other[:10] = np.roll(other[:10], 1, axis=1)
    heads = [
        (Head(output="y", kind="multi-label", thresholds=(0.5,) * 12), values, turned),
        (Head(output="y", kind="embedding"), values, turned),
        (Head(output="y", kind="dense"), maps, other),
    ]
    for head, wanted, given in heads:
        loose, tight = (
            compare_lossy(wanted, given, replace(lossy_gate("int8", budget=budget), rms=1.0), head=head) for budget in (5, 4)
        )
        assert (loose.passed, tight.passed) == (True, False), (head.kind, loose.why, tight.why)
        assert loose.loss_bound == pytest.approx(4.2, abs=0.05)
    raw = compare_lossy(values, values, lossy_gate("int8", budget=5), head=Head(output="y", kind="raw"))
    assert raw.why == "a budget is of outputs whose use is known: say what they are by task="
