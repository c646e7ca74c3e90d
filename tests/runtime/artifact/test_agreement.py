import numpy as np
import pytest

from headrace.runtime.artifact.agreement import (
    agreements,
    best_classes,
    decisions,
    fits_labels,
    lowest_cosine,
    probabilities,
    right_share,
    top5_agreement,
)
from headrace.runtime.artifact.lossy_parity import compare_lossy, lossy_gate
from headrace.runtime.artifact.parity import Gate, ParityRecord, compare
from headrace.runtime.base.task import Head, Task

LABELS = Head(output="y", kind="multi-label", thresholds=(0.5,))
EMBEDDING = Head(output="y", kind="embedding")
MAP = Head(output="y", kind="dense")
SCORES = Head(output="y", kind="single-label")


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32)


def noisy(rows, share):
    return (rows + share * np.random.default_rng(1).normal(size=rows.shape)).astype(np.float32)


def test_a_sigmoid_overflows_nowhere_and_thresholds_are_probabilities():
    scores = np.array([[-1e4, -2.0, 0.0, 2.0, 1e4]], np.float32)
    with np.errstate(all="raise"):
        np.testing.assert_allclose(probabilities(LABELS, scores), [[0, 0.1192, 0.5, 0.8808, 1]], atol=1e-4)
    head = Head(output="y", kind="multi-label", thresholds=(0.0, 0.1, 0.5, 0.9, 0.9))
    assert decisions(head, scores).tolist() == [[False, True, False, False, True]]
    given = Head(output="y", kind="multi-label", probabilities=True, thresholds=(0.3,))
    assert decisions(given, np.array([[0.2, 0.4]], np.float32)).tolist() == [[False, True]]


@pytest.mark.parametrize("count", [1, 5, 12, 16, 17, 400])
@pytest.mark.parametrize("width", [3, 40, 300])
@pytest.mark.parametrize("rows", [1, 9])
def test_the_best_classes_are_those_of_a_stable_sort(rows, width, count):
    """Few scores without arrays, one by one for a few, with all that is equal, and with what no class can have."""
    rng = np.random.default_rng(width + count)
    for scores in (
        rng.normal(size=(rows, width)).astype(np.float32),
        rng.integers(0, 4, (rows, width)).astype(np.float16),  # nearly all are equal
        np.where(rng.random((rows, width)) < 0.8, -np.inf, rng.normal(size=(rows, width))).astype(np.float32),
        rng.integers(-9, 9, (rows, width)),
    ):
        if not np.isfinite(scores.astype(np.float64)).any(axis=1).all():
            continue
        for head in (SCORES, Head(output="y", kind="single-label", probabilities=True)):
            if head.probabilities and not np.isfinite(scores.astype(np.float64)).all():
                continue
            classes, shares = best_classes(head, scores, count)
            wanted = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :count]
            np.testing.assert_array_equal(classes, wanted)
            np.testing.assert_allclose(shares, np.take_along_axis(probabilities(head, scores), wanted, axis=1), rtol=3e-7)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("given", [False, True])
def test_scores_that_are_no_numbers_give_no_probabilities(wrong, given):
    scores = np.arange(40, dtype=np.float32).reshape(2, 20)
    scores[1, 0] = wrong
    _, shares = best_classes(Head(output="y", kind="single-label", probabilities=given), scores, 3)
    assert np.isfinite(shares[0]).all()
    assert not np.isfinite(shares[1]).any()


def test_each_kind_has_its_own_gate(rows):
    for head in (LABELS, EMBEDDING):
        record = compare_lossy(rows, noisy(rows, 0.01), lossy_gate("fp16"), head=head)
        assert record.passed, record.why
        assert record.top1_agreement is None
        assert ParityRecord.from_json(record.to_json()) == record
    assert compare_lossy(rows, noisy(rows, 0.01), Gate(), head=LABELS).decision_agreement > 0.98
    assert compare_lossy(rows, noisy(rows, 0.01), Gate(), head=EMBEDDING).cosine > 0.999
    maps = np.random.default_rng(2).normal(size=(64, 3, 8, 8)).astype(np.float32)
    assert compare_lossy(maps, noisy(maps, 0.005), Gate(), head=MAP).top1_agreement > 0.98


def test_labels_near_their_thresholds_that_change_are_a_refusal(rows):
    high = rows + 2  # every label but few is above
    candidate = high.copy()
    assert compare_lossy(high, candidate, Gate(rms=10.0), head=LABELS).passed
    best = np.sort(rows.ravel())[-60:].min()
    few = rows - best - 0.01  # sixty labels hold in all: losing ten of them hardly moves the scores
    lost = few.copy()
    lost[np.unravel_index(np.argsort(few.ravel())[-10:], few.shape)] = -0.01
    record = compare_lossy(few, lost, Gate(rms=10.0), head=LABELS)
    assert "labels above their thresholds" in record.why
    assert record.decision_agreement < 0.9
    assert "same labels" in compare_lossy(rows - 100, rows - 100, Gate(), head=LABELS).why
    shifted = compare_lossy(rows, rows + 0.2, Gate(rms=10.0), head=LABELS)  # each label's order over images is kept
    assert not shifted.passed


def test_a_label_that_every_image_lacks_is_no_proof_even_beside_thresholds_of_its_own(rows):
    head = Head(output="y", kind="multi-label", thresholds=(1.0,) * 12)
    assert "same labels" in compare_lossy(rows, rows, Gate(), head=head).why


@pytest.mark.parametrize(
    "fault",
    [
        lambda rows: np.eye(rows.shape[1], dtype=np.float32)[rows.argmax(1)],
        lambda rows: rows * np.float32(0.5),  # its direction is right, and distances are not
        lambda rows: np.roll(rows, 1, axis=1),
        lambda rows: np.where(np.arange(len(rows))[:, None] == 7, -rows, rows),
        np.zeros_like,
    ],
    ids=["one-hot", "scaled", "rolled", "one row turned round", "nothing"],
)
def test_embeddings_are_held_to_direction_and_distance(rows, fault):
    assert not compare_lossy(rows, fault(rows), lossy_gate("int8"), head=EMBEDDING).passed


def test_cosines_of_nothing_and_of_what_is_no_number():
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    assert lowest_cosine(zeros, zeros) == 1.0
    assert lowest_cosine(zeros, ones) == lowest_cosine(ones, np.full_like(ones, np.nan)) == -1.0


def test_the_metric_of_several_labels_is_f1(rows):
    truth = (rows > 0).astype(np.int64)
    assert fits_labels(LABELS, rows, truth)
    assert not fits_labels(LABELS, rows, rows.argmax(1))
    assert not fits_labels(LABELS, rows, truth * 2)
    assert fits_labels(SCORES, rows, rows.argmax(1))
    assert not fits_labels(SCORES, rows, truth)
    assert not fits_labels(EMBEDDING, rows, truth)
    assert right_share(LABELS, rows, truth) == 1.0
    half = rows.copy()
    half[:100] = -1
    assert right_share(LABELS, half, truth) == pytest.approx(2 / 3, abs=0.03)
    record = compare_lossy(rows, noisy(rows, 0.005), Gate(), head=LABELS, labels=truth)
    assert "F1" in record.why
    assert record.accuracy_drop is not None


def test_every_head_speaks_in_the_record_and_any_may_fail_it(rows):
    task = Task((SCORES, Head(output="z", kind="embedding")))
    record = compare([rows, rows], [rows, rows], Gate(), task=task)
    assert (record.status, record.top1_agreement, record.cosine) == ("passed", 1.0, 1.0)
    dead = compare([rows, np.ones_like(rows)], [rows, np.ones_like(rows)], Gate(), task=task)
    assert "output z" in dead.why
    one, other = (compare_lossy(rows, given, Gate(), head=head) for head, given in zip(task.heads, (rows, -rows), strict=True))
    assert one.passed
    assert one.beside(other).why == other.why
    assert not one.beside(other).passed
    assert one.beside(other).cosine == other.cosine


def test_agreements_are_those_of_the_kind(rows):
    assert set(agreements(SCORES, rows, rows)) == {"top1_agreement", "top5_agreement"}
    assert agreements(Head(output="y", kind="raw"), rows, rows) == {}


def test_the_best_classes_are_judged_by_the_probabilities_that_the_head_gives():
    """As scores all five are likelier than a guess; as probabilities only the first is."""
    wanted = np.array([[0.92, 0.02, 0.015, 0.01, 0.01, 0.009, 0.008, 0.004, 0.002, 0.002]], np.float32)
    given = wanted[:, [0, 9, 8, 7, 6, 5, 4, 3, 2, 1]]
    assert top5_agreement(Head(output="y", kind="single-label", probabilities=True), wanted, given) == 1
    spread = Head(output="y", kind="single-label")
    assert top5_agreement(spread, 10 * wanted, 10 * given) == 1
    assert top5_agreement(spread, np.zeros((2, 10), np.float32), np.zeros((2, 10), np.float32)) == 1
    assert top5_agreement(spread, wanted[:, :3], given[:, :3]) is None
    broken = np.full((1, 10), np.nan, np.float32)
    assert top5_agreement(spread, broken, given) is not None  # refused elsewhere
