"""Whether two packages are of one model: a plan that was measured for one may then serve the other's requests. Torch-free."""

from __future__ import annotations

import numpy as np

from .artifact import Artifact
from .known_answers import recorded_span
from .lossy_parity import relative_rms
from .manifest import ONNX_FILE, digest

_ROUNDING = 1e-4  # of what tells rows apart: the same weights on one machine, on other numbers of threads


def how_another(one: Artifact, other: Artifact) -> str | None:
    """What of a model is not as it is in another package, in a word or two; None where both are of the same."""
    for what in ("signature", "preprocessing", "task"):
        if getattr(one, what) != getattr(other, what):
            return {"signature": "inputs or outputs", "task": "labels or task"}.get(what, what)
    if ONNX_FILE in one.files and ONNX_FILE in other.files and _graph(one) == _graph(other):
        return None
    weights = [artifact.provenance.get("weights") for artifact in (one, other)]
    if weights[0] is None or weights[0] != weights[1]:
        return "weights"
    answers = [artifact.answers for artifact in (one, other)]
    if answers[0] is None or answers[1] is None:
        return None if answers == [None, None] else "answers"
    if recorded_span(answers[0]) != recorded_span(answers[1]):
        return "answers"
    known, found = (np.array(item["values"], np.float64) for item in (answers[0], answers[1]))
    return None if known.shape == found.shape and relative_rms(known, found) <= _ROUNDING else "answers"


def _graph(artifact: Artifact) -> str:
    return digest(artifact.path / ONNX_FILE, inside=artifact.path)
