"""The best classes of scores that lie in parts: what each rank says of its own classes, and what all of that comes to.

As `best_classes` has it for the whole: softmax is over all classes, of equal scores the first class is first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..agreement import Array, greatest_first


class Best(NamedTuple):
    """Of one part's scores: the `count` best classes of each row (int64 [rows, count], counted from the part's first), their
    scores (float64 alike), and the sum of exp(score - best score) over the part's classes (float64 [rows])."""

    classes: Array
    scores: Array
    total: Array


def best_of_part(scores: Array, count: int) -> Best:
    """Of float32 [rows, classes]; fewer than `count` where there are no more classes."""
    rows = np.arange(len(scores))[:, None]
    order = greatest_first(scores, min(count, scores.shape[1]))
    best = scores[rows, order[:, :1]]
    with np.errstate(invalid="ignore"):
        total = np.exp(scores - best).sum(axis=-1, dtype=np.float64)
    # classes that are ruled out (-inf) add nothing, be it all of this part
    total = np.where((best[:, 0] == -np.inf) & ~np.isnan(scores).any(axis=-1), 0.0, total)
    return Best(order, scores[rows, order].astype(np.float64), total)


def merged(parts: Sequence[Best], firsts: Sequence[int], count: int) -> tuple[Array, Array]:
    """The `count` best classes of all, int64 [rows, count], and their probabilities, float64, where the parts' classes begin at
    `firsts`. Each part must have its own `count` best, or all that it has."""
    classes = np.concatenate([part.classes + first for part, first in zip(parts, firsts, strict=True)], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    found = np.take_along_axis(scores, order, axis=1)
    with np.errstate(invalid="ignore"):
        weights = [np.where(part.total == 0, 0.0, part.total * np.exp(part.scores[:, 0] - found[:, 0])) for part in parts]
        return np.take_along_axis(classes, order, axis=1), np.exp(found - found[:, :1]) / np.sum(weights, axis=0)[:, None]
