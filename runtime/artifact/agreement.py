"""How far two computations of one output agree in what that output is for, and how right it is. numpy only.

Scores of one class agree where the same class is best; those of several labels where the same labels hold; embeddings in their
direction; maps in the best class of each place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.task import DENSE, EMBEDDING, MULTI_LABEL, SINGLE_LABEL, Head

Array = np.ndarray[Any, Any]
METRICS = {SINGLE_LABEL: "accuracy", MULTI_LABEL: "F1"}
"""What is called right of outputs whose labels are known."""

# Up to so many scores in all are sorted sooner without arrays: behind a large model, whose batch has left nothing of numpy's in
# the processor's caches, ten times as soon. Up to so many more are sorted sooner than looked through; of yet more, so many best
# classes are found sooner one by one.
_LISTED, _SORTED, _FEW = 64, 512, 16


def agreements(head: Head, reference: Array, candidate: Array) -> dict[str, float | None]:
    """The shares of agreement by what the head is, under their names in a parity record; None for what cannot be told."""
    measure = _AGREEMENTS.get(head.kind)
    return measure(head, flat_scores(reference), flat_scores(candidate)) if measure else {}


def top1_agreement(reference: Array, candidate: Array) -> float | None:
    """The share of rows [rows, classes] whose largest score is the same class; None unless there are two classes or more."""
    reference, candidate = flat_scores(reference), flat_scores(candidate)
    if reference.ndim != 2 or reference.shape[1] < 2 or reference.dtype.kind != "f":
        return None
    return float(np.mean(reference.argmax(axis=1) == candidate.argmax(axis=1)))


def top5_agreement(head: Head, reference: Array, candidate: Array) -> float | None:
    """The share of the best classes, five or half of all, that are among the candidate's; None for fewer than four classes.

    Only those count that the model holds for likelier than a guess, 1 / classes, as the best always is: the order of the others
    is noise, which any rounding changes where the model is sure.
    """
    if reference.ndim != 2 or reference.shape[1] < 4:
        return None
    classes = reference.shape[1]
    wanted, given = (np.argsort(-value, axis=1)[:, : min(5, classes // 2)] for value in (reference, candidate))
    kept: Array = (wanted[:, :, None] == given[:, None, :]).any(axis=2)
    with np.errstate(invalid="ignore"):  # scores that are no numbers are likely nowhere, and refused elsewhere
        likely: Array = np.take_along_axis(probabilities(head, reference), wanted, axis=1) > 1 / classes
    likely[:, 0] = True
    return float(kept[likely].mean())


def decision_agreement(head: Head, reference: Array, candidate: Array) -> float | None:
    """Of the labels that hold by either, the share that hold by both; None where none holds."""
    wanted: Array = decisions(head, reference)
    given: Array = decisions(head, candidate)
    either = int((wanted | given).sum())
    return float((wanted & given).sum()) / either if either else None


def lowest_cosine(reference: Array, candidate: Array) -> float:
    """The cosine of the row whose direction changed most."""
    wanted: Array = reference.reshape(len(reference), -1).astype(np.float64)
    given: Array = candidate.reshape(len(candidate), -1).astype(np.float64)
    lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(given, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.where((wanted == given).all(axis=1), 1.0, (wanted * given).sum(axis=1) / lengths)
    return float(np.nan_to_num(cosines, nan=-1.0).min(initial=1.0))


def probabilities(head: Head, scores: Array) -> Array:
    """Of each label or class, from scores [..., K], in float64. Log-probabilities need no case: softmax gives them back."""
    if head.probabilities:
        return scores.astype(np.float64)
    return sigmoid(scores) if head.kind == MULTI_LABEL else softmax(scores)


def softmax(scores: Array) -> Array:
    """Over the last axis, in float64."""
    values: Array = scores.astype(np.float64)
    shifted: Array = np.exp(values - values.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def best_classes(head: Head, scores: Array, count: int) -> tuple[Array, Array]:
    """Of scores [rows, classes] the `count` most probable classes of each row in falling order, of equal ones the first first,
    and their probabilities: int64 and float64 [rows, count]. A row whose scores are not numbers has no probability that is one.

    They differ from those of `probabilities` in the seventh digit at most: of float32 all powers are taken in float32, a sixth
    of the work.
    """
    count = min(count, scores.shape[1])
    if scores.size <= _LISTED and (few := _best_of_few(head, scores, count)) is not None:
        return few
    values: Array = scores if scores.dtype == np.float32 else scores.astype(np.float64)
    rows = np.arange(len(values))[:, None]
    order = greatest_first(values, count)
    found: Array = values[rows, order].astype(np.float64)
    if head.probabilities:
        return order, np.where(np.isfinite(values).all(axis=-1, keepdims=True), found, np.nan)
    with np.errstate(invalid="ignore"):
        greatest = values[rows, order[:, :1]]
        total = np.exp(values - greatest).sum(axis=-1, keepdims=True, dtype=np.float64)
        return order, np.exp(found - greatest) / total


def _best_of_few(head: Head, scores: Array, count: int) -> tuple[Array, Array] | None:
    """The same without arrays; None where a score is not a number, which have an order of their own."""
    order, found = list[list[int]](), list[list[float]]()
    for row in scores.tolist():
        if not all(map(math.isfinite, row)):
            return None
        best = sorted(range(len(row)), key=row.__getitem__, reverse=True)[:count]
        order.append(best)
        if head.probabilities:
            found.append([row[index] for index in best])
        else:
            powers = [math.exp(value - row[best[0]]) for value in row]
            total = math.fsum(powers)
            found.append([powers[index] / total for index in best])
    return np.array(order, np.int64).reshape(-1, count), np.array(found, np.float64).reshape(-1, count)


def greatest_first(values: Array, count: int) -> Array:
    """Where in each row of [rows, classes] the `count` greatest are, in falling order, of equal ones the first first."""
    rows: Array = np.arange(len(values))
    if values.size > _SORTED and count <= _FEW:
        left = values.copy()
        order: Array = np.empty((len(values), count), np.int64)
        for place in range(count):
            order[:, place] = best = left.argmax(axis=-1)
            left[rows, best] = -np.inf
        if (values[rows[:, None], order] > -np.inf).all():  # else what was found before may be found again
            return order
    return np.argsort(-values, axis=-1, kind="stable")[:, :count]


def sigmoid(scores: Array) -> Array:
    """Of each number, in float64, without overflow."""
    values: Array = scores.astype(np.float64)
    return 0.5 * (1 + np.tanh(values / 2))


def decisions(head: Head, scores: Array) -> Array:
    """Which labels hold, bool [rows, labels]."""
    held: Array = probabilities(head, flat_scores(scores)) > np.asarray(head.thresholds)
    return held


def fits_labels(head: Head, scores: Array, labels: Array) -> bool:
    """Whether labels can be those of such scores: a class number for each row, or zeros and ones for each label of a row."""
    scores = flat_scores(scores)
    if head.kind == SINGLE_LABEL:
        return labels.shape == scores.shape[:1] and labels.dtype.kind in "iu"
    return head.kind == MULTI_LABEL and labels.shape == scores.shape and bool(np.isin(labels, (0, 1)).all())


def right_share(head: Head, scores: Array, labels: Array) -> float:
    """By the head's metric: the share of rows whose best class is right, or F1 over all labels of all rows."""
    if head.kind == SINGLE_LABEL:
        return float(np.mean(flat_scores(scores).argmax(axis=1) == labels))
    given: Array = decisions(head, scores)
    wanted: Array = labels.astype(bool)
    counted = int(given.sum() + wanted.sum())
    return 2 * float((given & wanted).sum()) / counted if counted else 1.0


def flat_scores(output: Array) -> Array:
    """[rows, classes] of the [rows, classes, 1, 1] that a fully convolutional network gives; any other array as it is."""
    one_each = output.ndim > 2 and output.size == output.shape[0] * output.shape[1]
    return output.reshape(output.shape[:2]) if one_each else output


def _of_classes(head: Head, reference: Array, candidate: Array) -> dict[str, float | None]:
    return {
        "top1_agreement": top1_agreement(reference, candidate),
        "top5_agreement": top5_agreement(head, reference, candidate),
    }


def _of_labels(head: Head, reference: Array, candidate: Array) -> dict[str, float | None]:
    return {"decision_agreement": decision_agreement(head, reference, candidate)}


def _of_embeddings(head: Head, reference: Array, candidate: Array) -> dict[str, float | None]:
    return {"cosine": lowest_cosine(reference, candidate)}


def _of_places(head: Head, reference: Array, candidate: Array) -> dict[str, float | None]:
    if reference.ndim != 4 or reference.shape[1] < 2:
        return {}
    return {"top1_agreement": float(np.mean(reference.argmax(axis=1) == candidate.argmax(axis=1)))}


_AGREEMENTS: dict[str, Callable[[Head, Array, Array], dict[str, float | None]]] = {
    SINGLE_LABEL: _of_classes,
    MULTI_LABEL: _of_labels,
    EMBEDDING: _of_embeddings,
    DENSE: _of_places,
}
