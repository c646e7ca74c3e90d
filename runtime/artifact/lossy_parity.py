"""What a lossy candidate (bf16, fp16, int8, fp8) is held to: each output by what it is for, on real images. numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.task import DENSE, EMBEDDING, MULTI_LABEL, RAW, SINGLE_LABEL, Head, Task
from .agreement import METRICS, Array, agreements, decisions, flat_scores, right_share
from .losses import Losses, losses, one_of_few, too_few_to_tell
from .parity import FAINT, SCORES, Gate, ParityRecord, compare, largest_difference, shape_mismatch

# Most rms, least top-5 agreement and most change of scale by precision, 1.5 to 4 times what trained weights need on images
# hard to tell apart: docs/soundness.md has the numbers. The least cosine is that of a row whose error is about three times the
# most rms: 1 - (3 rms)^2 / 2, and 0.9 at least.
_LOSSY_LIMITS = {"fp16": (0.03, 0.95, 0.01, 0.995), "bf16": (0.15, 0.85, 0.02, 0.9)}


def lossy_gate(dtype: str, *, budget: float | None = None, alpha: float = Gate.alpha) -> Gate:
    """What a candidate that computes in "bf16", "fp16", "int8" or "fp8" is held to."""
    rms, top5, scale, cosine = _LOSSY_LIMITS.get(dtype, (Gate.rms, Gate.top5, Gate.scale, Gate.cosine))
    return Gate(rms=rms, top5=top5, scale=scale, cosine=cosine, budget=budget, alpha=alpha)


_LEAST_EQUAL_LOSSY = 0.9  # of the values of outputs that are whole numbers
# Rounding scatters the scale of a few rows by its standard error; of so many rows or more, by no more than so many of those.
_ROWS_FOR_SCALE, _STANDARD_ERRORS = 16, 4.0


def beyond_lossy(reference: Sequence[Array], candidate: Sequence[Array], gate: Gate) -> str | None:
    """Which output of a lossy candidate is not finite where the reference is, is off by more than it may, or differs in too
    many whole numbers; None where none is."""
    if why := shape_mismatch(reference, candidate):
        return why
    for index, (wanted, given) in enumerate(zip(reference, candidate, strict=True)):
        if wanted.dtype.kind != "f":
            if (share := float(np.mean(wanted == given))) < _LEAST_EQUAL_LOSSY:
                return f"output {index} agrees in {share:.1%} of its values"
        elif why := _not_finite(wanted, given):
            return f"output {index}: {why}"
        elif not (error := relative_rms(wanted, given)) <= gate.rms:
            return f"output {index} is off by {error:.0%} of what tells rows apart (root mean square), more than {gate.rms:.0%}"
        elif why := wrong_scale(wanted, given, gate):
            return f"output {index}: {why}"
    return None


def compare_lossy(
    reference: Array,
    candidate: Array,
    gate: Gate,
    *,
    head: Head = SCORES,
    labels: Array | None = None,
    batches: Sequence[int] = (),
) -> ParityRecord:
    """Judge a lossy candidate's output [images, ...] on real images: by what the head is and, with labels, by its metric."""
    reference, candidate = flat_scores(reference), flat_scores(candidate)
    rows = len(reference)
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := shape_mismatch([reference], [candidate]):
        return ParityRecord(status="failed", why=why, **facts)
    facts |= {"max_abs": largest_difference(reference, candidate), "rms": relative_rms(reference, candidate)}
    facts["budget"] = gate.budget
    facts |= agreements(head, reference, candidate)
    fitted = scale(reference, candidate)
    facts["scale"] = fitted[0] if fitted else None
    found = losses(head, reference, candidate, labels, cosine=gate.cosine, places=gate.place_agreement)
    if found is not None:
        facts |= {"loss_bound": found.bound(gate.alpha), "confidence": 1 - gate.alpha}
    why = _not_finite(reference, candidate)
    if why is None and rows < gate.least_images:
        why = f"a lossy precision needs at least {gate.least_images} real images to be judged, got {rows}"
    why = why or _JUDGES[head.kind](head, reference, candidate, facts, gate, labels is not None)
    if why is None and not facts["rms"] <= gate.rms:
        why = f"values are off by {facts['rms']:.0%} of what tells images apart (root mean square), more than {gate.rms:.0%}"
    if why is None and (ranks := facts.get("top5_agreement")) is not None and ranks < gate.top5:
        why = f"of the five best classes, where likelier than a guess, {ranks:.0%} are the same, less than {gate.top5:.0%}"
    if why is None and gate.budget is not None:
        why = _NO_USE if found is None else found.beyond(gate.budget, gate.alpha)
    if labels is not None and head.kind in METRICS:
        facts["accuracy_drop"] = 100 * (right_share(head, reference, labels) - right_share(head, candidate, labels))
    why = why or _off_scale(fitted, rows, gate) or _fallen(head, facts, found, gate)
    return ParityRecord(status="failed" if why else "passed", why=why or _passed(head, facts, found, gate), **facts)


_NO_USE = "a budget is of outputs whose use is known: say what they are by task="


def _fallen(head: Head, facts: Mapping[str, Any], found: Losses | None, gate: Gate) -> str | None:
    """How a metric falls by more than it may, and by more than one image of few."""
    drop = facts.get("accuracy_drop")
    if drop is None or gate.budget is not None or drop <= gate.accuracy_points + 1e-9:
        return None
    if found is not None and head.kind == SINGLE_LABEL and one_of_few(found, gate.agreement_with_labels):
        return None
    return f"{METRICS[head.kind]} falls by {drop:.2f} points on {facts['rows']} images, more than {gate.accuracy_points}"


def _passed(head: Head, facts: Mapping[str, Any], found: Losses | None, gate: Gate) -> str:
    """What was asked of a candidate that passed, and what that says of all images."""
    labeled, rows = "accuracy_drop" in facts, facts["rows"]
    images = f"{rows} labeled images, and {METRICS[head.kind]}" if labeled else f"{rows} images"
    asked = _GATES[head.kind].format(least=_least_agreement(gate, labeled), gate=gate)
    if gate.budget is not None:
        asked, images = f"a budget of {gate.budget:g} points", f"{rows} labeled images" if labeled else f"{rows} images"
    if found is None:
        return f"{asked} on {images}"
    what = f"points of {found.what} are lost with {100 * (1 - gate.alpha):.4g}% confidence"
    return f"{asked} on {images}: at most {facts['loss_bound']:.2f} {what}"


def _least_agreement(gate: Gate, labeled: bool) -> float:
    return gate.agreement_with_labels if labeled else gate.agreement


def _judge_classes(
    head: Head, reference: Array, candidate: Array, facts: Mapping[str, Any], gate: Gate, labeled: bool
) -> str | None:
    agreement, best = facts["top1_agreement"], reference.argmax(axis=1)
    if agreement is None:
        return "top-1 agreement needs at least two class scores per row"
    if (best == best[0]).all():
        return "the model gives every image the same class, so agreement proves nothing"
    if gate.budget is None and agreement < (least := _least_agreement(gate, labeled)):
        if too_few_to_tell(reference, candidate, least):
            return None
        return f"top-1 agrees on {agreement:.2%} of {len(reference)} images, less than {least:.1%}"
    return None


def _judge_labels(
    head: Head, reference: Array, candidate: Array, facts: Mapping[str, Any], gate: Gate, labeled: bool
) -> str | None:
    held = decisions(head, reference)
    if (held == held[:1]).all():
        return "the model gives every image the same labels, so agreement proves nothing"
    agreement = facts["decision_agreement"]
    if gate.budget is None and agreement < gate.decision_agreement:
        return f"of the labels above their thresholds {agreement:.2%} are the same, less than {gate.decision_agreement:.0%}"
    return None


def _judge_embeddings(
    head: Head, reference: Array, candidate: Array, facts: Mapping[str, Any], gate: Gate, labeled: bool
) -> str | None:
    if gate.budget is None and facts["cosine"] < gate.cosine:
        return (
            f"the direction of an embedding changes: its cosine with the model's is {facts['cosine']:.4f}, below {gate.cosine}"
        )
    return None


def _judge_places(
    head: Head, reference: Array, candidate: Array, facts: Mapping[str, Any], gate: Gate, labeled: bool
) -> str | None:
    agreement = facts.get("top1_agreement")
    if gate.budget is None and agreement is not None and agreement < gate.place_agreement:
        return f"the best class is the same at {agreement:.2%} of the places, less than {gate.place_agreement:.0%}"
    return None


def _judge_values(
    head: Head, reference: Array, candidate: Array, facts: Mapping[str, Any], gate: Gate, labeled: bool
) -> str | None:
    return None


_JUDGES = {
    SINGLE_LABEL: _judge_classes,
    MULTI_LABEL: _judge_labels,
    EMBEDDING: _judge_embeddings,
    DENSE: _judge_places,
    RAW: _judge_values,
}
_GATES = {
    SINGLE_LABEL: "top-1 agreement of at least {least:.1%}",
    MULTI_LABEL: "agreement of at least {gate.decision_agreement:.0%} of the labels above their thresholds",
    EMBEDDING: "cosine of at least {gate.cosine} with the model's embeddings",
    DENSE: "root mean square error of at most {gate.rms:.0%}, and the best class of places,",
    RAW: "root mean square error of at most {gate.rms:.0%}",
}


def compare_relative(
    reference: Sequence[Array],
    candidate: Sequence[Array],
    gate: Gate,
    *,
    task: Task | None = None,
    batches: Sequence[int] = (),
) -> ParityRecord:
    """Judge a pinned lossy candidate without real images, by error as a share of the outputs' range; the record says so."""
    record = compare(reference, candidate, replace(gate, tolerance=gate.relative_error), task=task, batches=batches)
    if not record.passed:
        return record
    return replace(record, why=f"no real images were given: held to {gate.relative_error:.0%} of the outputs' range only")


def relative_rms(reference: Array, candidate: Array) -> float:
    """The root mean square of the error as a share of that of the reference's variation between rows; NaN is infinite."""
    wanted: Array = reference.astype(np.float64)
    given: Array = candidate.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.sqrt(np.mean(np.square(given - wanted))))
    signal = float(np.sqrt(np.mean(np.square(wanted - wanted.mean(axis=0, keepdims=True)))))
    size = float(np.sqrt(np.mean(np.square(wanted))))
    signal = signal if signal > FAINT * size else size  # of an output that does not depend on the input, the output itself
    if error == 0:
        return 0.0
    return error / signal if np.isfinite(error) and signal > 0 else float("inf")


def scale(reference: Array, candidate: Array) -> tuple[float, float] | None:
    """What the candidate multiplies the variation between rows [rows, ...] by, and the standard error of that.

    The slope of a least-squares line through all values, with the error by rows, whose values are off together (as if each
    row were left out once: MacKinnon and White 1985). None where nothing varies or is not finite.
    """
    wanted: Array = reference.reshape(len(reference), -1).astype(np.float64)
    given: Array = candidate.reshape(len(candidate), -1).astype(np.float64)
    if not (np.isfinite(wanted).all() and np.isfinite(given).all()):
        return None
    wanted, given = wanted - wanted.mean(axis=0), given - given.mean(axis=0)
    by_row = np.square(wanted).sum(axis=1)
    varies = float(by_row.sum())
    if not varies > 0:
        return None
    slope = float((wanted * given).sum()) / varies
    off = (wanted * (given - slope * wanted)).sum(axis=1) / np.maximum(1 - by_row / varies, 1e-9)
    return slope, float(np.sqrt(np.square(off).sum())) / varies


def wrong_scale(reference: Array, candidate: Array, gate: Gate) -> str | None:
    """Whether all values are too large or too small by the same share, which rounding does not do; None for too few rows."""
    return _off_scale(scale(reference, candidate), len(reference), gate)


def _off_scale(fitted: tuple[float, float] | None, rows: int, gate: Gate) -> str | None:
    if fitted is None or rows < _ROWS_FOR_SCALE:
        return None
    slope, error = fitted
    if abs(slope - 1) - _STANDARD_ERRORS * error <= gate.scale:
        return None
    return f"what tells rows apart is {slope:.3g} times as large, further from 1 than {gate.scale:.0%}"


def _not_finite(reference: Array, candidate: Array) -> str | None:
    broken = np.isfinite(reference) & ~np.isfinite(candidate)
    rows = int(broken.reshape(len(broken), -1).any(axis=1).sum())
    return f"{rows} of {len(broken)} rows are NaN or infinite where the model's own are not" if rows else None
