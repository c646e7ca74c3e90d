"""Faults in what a lossy candidate computes for a network that gives several labels, or embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .candidates import CLASSES, EMBEDDINGS, LABELS, Rows, add, in_outputs
from .faults import Fault


def faults() -> list[Fault]:
    """Every fault of this stage."""

    def fewer(out: Rows, _: Sequence[np.ndarray], size: float) -> None:
        low = out[0] < np.quantile(out[0], 0.9)
        out[0][:] = np.where(low, out[0], out[0] - 10 * size)  # the labels that hold, and no others

    labels: list[tuple[str, Any, float | None, str]] = [
        ("labels that hold are lost", fewer, 1.0, ""),
        ("scores shifted", lambda out, _, size: add(out, np.full_like(out[0], size)), 10.0, ""),
        ("two labels swapped", lambda out, *_: [out[0][:, [1, 0, *range(2, CLASSES)]], out[1]], None, ""),
        ("a label that never holds", lambda out, _, size: out[0].__setitem__((..., 2), out[0][:, 2] - 8 * size), 1.0, ""),
        ("softmax in place of a sigmoid", lambda out, *_: [_softmax(out[0]), out[1]], None, ""),
        ("decisions in place of scores", lambda out, *_: [(out[0] > 0).astype(np.float32), out[1]], None, ""),
    ]
    vectors: list[tuple[str, Any, float | None, str]] = [
        ("vectors scaled", lambda out, _, size: [out[0], out[1] * np.float32(1 - size)], 0.9, "of their length"),
        ("vectors made of length one", lambda out, *_: [out[0], out[1] / np.linalg.norm(out[1], axis=1)[:, None]], None, ""),
        ("the largest number alone", lambda out, *_: [out[0], np.eye(12, dtype=np.float32)[out[1].argmax(1)]], None, ""),
        ("two numbers swapped", lambda out, *_: [out[0], out[1][:, [1, 0, *range(2, 12)]]], None, ""),
        ("a few vectors turned round", _few_turned, None, ""),
        ("one vector for all", lambda out, *_: [out[0], np.repeat(out[1].mean(0, keepdims=True), len(out[1]), 0)], None, ""),
    ]
    stages = (("lossy labels", labels, LABELS), ("lossy embeddings", vectors, EMBEDDINGS))
    return [
        Fault(name, stage, in_outputs(change, lossy=True, task=task), size, unit)
        for stage, changes, task in stages
        for name, change, size, unit in changes
    ]


def _few_turned(out: Rows, given: Sequence[np.ndarray], _: float) -> Rows:
    """Those of the brightest images, one of twenty."""
    bright = given[0].mean((1, 2, 3)) > 0.38
    return [out[0], np.where(bright[:, None], -out[1], out[1])]


def _softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)
