"""Do two computations agree, and does their agreement prove anything? numpy only.

Lossless candidates (same precision, other order of operations) are held to a tolerance that comes from the model's own
eager noise. Lossy ones (bf16) are judged by what each output is for, on real images: of a classifier the top-1 class, and
accuracy with labels; of several labels which hold; of an embedding its direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..base.task import DENSE, EMBEDDING, MULTI_LABEL, RAW, SINGLE_LABEL, Head, Task
from .agreement import METRICS, Array, agreements, decisions, flat_scores, right_share
from .losses import Losses, losses, one_of_few, too_few_to_tell

_STATUSES = ("passed", "failed", "not-run")
AGREEMENTS = ("top1_agreement", "decision_agreement", "cosine")
"""The fields of a record that tell how far an output agrees in what it is for."""
_SCORES = Head(output="output", kind=SINGLE_LABEL)


@dataclass(frozen=True, kw_only=True)
class ParityRecord:
    """The outcome of one comparison. `max_abs` is in the outputs' units, `tolerance` is what it was held to.

    `top1_agreement` is the share of rows whose largest output is the same class, `top5_agreement` the share of the five largest
    that are among the candidate's; of several labels, `decision_agreement` is the share of those above their thresholds that
    are so by both, and of an embedding `cosine` is the lowest between a row of each. `rms` is the root mean square of the error
    over that of what tells rows apart. `accuracy_drop` is in points of accuracy, or of F1 over several labels. `loss_bound` is
    the most that all images lose with that `confidence`, in points: of accuracy where labels are known, else of images that get
    the same answer; `budget` is the most that they may lose, where that was asked for. `why` explains
    any status but "passed", and for a passed lossy check says which gate was applied.
    """

    status: str
    max_abs: float | None = None
    top1_agreement: float | None = None
    tolerance: float | None = None
    accuracy_drop: float | None = None
    rms: float | None = None
    top5_agreement: float | None = None
    scale: float | None = None
    decision_agreement: float | None = None
    cosine: float | None = None
    loss_bound: float | None = None
    confidence: float | None = None
    budget: float | None = None
    rows: int = 0
    batches: tuple[int, ...] = ()
    why: str | None = None

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(f"parity: status must be one of {', '.join(_STATUSES)}; got {self.status!r}")

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def joined(self, other: ParityRecord) -> ParityRecord:
        """Both comparisons as one, which passed if both did: the larger difference and the lesser agreement."""
        return replace(
            self._least(other.to_json()),
            status=self.status if other.passed else other.status,
            max_abs=max(self.max_abs or 0.0, other.max_abs or 0.0),
            rows=self.rows + other.rows,
            why=self.why or other.why if other.passed else other.why,
        )

    def agreeing(self, shares: Mapping[str, float | None]) -> ParityRecord:
        """The same with the lesser of its agreements and these, which stand under the names of its fields."""
        return self._least(shares)

    def beside(self, other: ParityRecord) -> ParityRecord:
        """That of an output that counts together with another's of the same rows: the first that failed says why."""
        failed = next((record for record in (self, other) if not record.passed), self)
        whys = "; ".join(dict.fromkeys(filter(None, (self.why, other.why)))) if failed.passed else failed.why
        return replace(self._least(other.to_json()), status=failed.status, why=whys or None)

    def _least(self, shares: Mapping[str, Any]) -> ParityRecord:
        least: dict[str, Any] = {
            name: min((share for share in (getattr(self, name), shares.get(name)) if share is not None), default=None)
            for name in AGREEMENTS
        }
        if other_bound := shares.get("loss_bound"):
            least["loss_bound"] = max(other_bound, self.loss_bound or 0.0)
            least["confidence"] = shares["confidence"]
        return replace(self, **least)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "batches": list(self.batches)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ParityRecord:
        return cls(**{**data, "batches": tuple(data["batches"])})


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a candidate is held to.

    `tolerance` is the largest accepted |difference| / max |reference|, or None: then `noise` (one value per output, the model's
    own eager noise in the outputs' units) sets it. For a lossy precision: least top-1 agreement, most points of accuracy
    that may be lost where labels are given, and what bounds the scores themselves, whose order alone would let pass scores
    of another scale: most `rms`, least top-5 agreement and how far their `scale` may be from 1, which `lossy_gate` sets, as it
    does the least `cosine` of embeddings. Least agreement of the labels above their thresholds, and of the best class of each
    place of a map. The numbers are the project's gate for "auto". With a `budget`, in points, the images must show that no more
    is lost, but for a probability of `alpha`, in place of the least agreements and of `accuracy_points`.
    """

    tolerance: float | None = None
    noise: tuple[float, ...] = ()
    agreement: float = 0.995
    agreement_with_labels: float = 0.99
    accuracy_points: float = 0.1
    least_images: int = 64
    relative_error: float = 0.05
    rms: float = 0.25
    top5: float = 0.8
    scale: float = 0.05
    cosine: float = 0.9
    decision_agreement: float = 0.98
    place_agreement: float = 0.98
    budget: float | None = None
    alpha: float = 0.05


# Most rms, least top-5 agreement and most change of scale by precision, 1.5 to 4 times what trained weights need on images
# hard to tell apart: docs/soundness.md has the numbers. The least cosine is that of a row whose error is about three times the
# most rms: 1 - (3 rms)^2 / 2, and 0.9 at least.
_LOSSY_LIMITS = {"fp16": (0.03, 0.95, 0.01, 0.995), "bf16": (0.15, 0.85, 0.02, 0.9)}


def lossy_gate(dtype: str, *, budget: float | None = None, alpha: float = Gate.alpha) -> Gate:
    """What a candidate that computes in "bf16", "fp16", "int8" or "fp8" is held to."""
    rms, top5, scale, cosine = _LOSSY_LIMITS.get(dtype, (Gate.rms, Gate.top5, Gate.scale, Gate.cosine))
    return Gate(rms=rms, top5=top5, scale=scale, cosine=cosine, budget=budget, alpha=alpha)


# A lossless candidate may differ by this many times the noise, and always by this share of what tells rows apart.
_NOISE_FACTOR = 8.0
_SIGNAL_SHARE = 1e-4
_ROUNDING = 4e-6
_LEAST_EQUAL, _LEAST_EQUAL_LOSSY = 0.99, 0.9  # of the values of outputs that are whole numbers
# Rounding scatters the scale of a few rows by its standard error; of so many rows or more, by no more than so many of those.
_ROWS_FOR_SCALE, _STANDARD_ERRORS = 16, 4.0
_FAINT = 1e-3  # of the output's scale: rows that differ by more do depend on the input, whatever the noise


def compare(
    reference: Sequence[Array],
    candidate: Sequence[Array],
    gate: Gate,
    *,
    task: Task | None = None,
    batches: Sequence[int] = (),
) -> ParityRecord:
    """Hold a lossless candidate's outputs, each [rows, ...], to the reference's. At least two different rows are needed.

    Never passes when an output that the model is for is the same for all rows, or when the tolerance would hide what tells
    them apart. Without a task the model is for its first output, which holds class scores.
    """
    task = task or Task((_SCORES,))
    primary = task.primary
    rows = len(reference[primary])
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := _shape_mismatch(reference, candidate):
        return ParityRecord(status="failed", why=why, **facts)
    floats = [index for index, value in enumerate(reference) if value.dtype.kind == "f"]
    limits = tolerances(reference, gate)
    facts |= {
        "max_abs": max((_largest(reference[index], candidate[index]) for index in floats), default=0.0),
        "tolerance": limits[primary],
    }
    why = unusable(reference, task, gate.noise) or beyond(reference, candidate, limits)
    record = ParityRecord(status="failed" if why else "passed", why=why, **facts)
    for index in task.judged:
        record = record.agreeing(agreements(task.heads[index], reference[index], candidate[index]))
    return record


def tolerances(reference: Sequence[Array], gate: Gate) -> list[float | None]:
    """How far each output may be off, in its units; None for those that are no floats."""
    floats = [value.dtype.kind == "f" for value in reference]
    return [_tolerance(value, gate, _noise(gate, index)) if floats[index] else None for index, value in enumerate(reference)]


def largest_changes(base: Sequence[Array], others: Sequence[Sequence[Array]]) -> tuple[float, ...]:
    """How far any of the others is from each output, in its units; 0 for what are no floats."""
    noise = [0.0] * len(base)
    for other in others:
        for index, (expected, actual) in enumerate(zip(base, other, strict=True)):
            if expected.dtype.kind == "f":
                difference = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
                noise[index] = max(noise[index], float(np.nan_to_num(difference).max(initial=0.0)))
    return tuple(noise)


def beyond(reference: Sequence[Array], candidate: Sequence[Array], limits: Sequence[float | None]) -> str | None:
    """Which output is off by more than its limit, or agrees in too few of its values; None where none is."""
    if why := _shape_mismatch(reference, candidate):
        return why
    for index, (wanted, given, limit) in enumerate(zip(reference, candidate, limits, strict=True)):
        if limit is not None and not (difference := _largest(wanted, given)) <= limit:
            return f"output {index} differs by {difference:.2e}, more than the tolerance {limit:.2e}"
        if limit is None and (share := float(np.mean(wanted == given))) < _LEAST_EQUAL:
            return f"output {index} agrees in {share:.1%} of its values"
    return None


def beyond_lossy(reference: Sequence[Array], candidate: Sequence[Array], gate: Gate) -> str | None:
    """The same for a lossy candidate: finite where the reference is, the error bounded, whole numbers alike."""
    if why := _shape_mismatch(reference, candidate):
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
    head: Head = _SCORES,
    labels: Array | None = None,
    batches: Sequence[int] = (),
) -> ParityRecord:
    """Judge a lossy candidate's output [images, ...] on real images: by what the head is and, with labels, by its metric."""
    reference, candidate = flat_scores(reference), flat_scores(candidate)
    rows = len(reference)
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := _shape_mismatch([reference], [candidate]):
        return ParityRecord(status="failed", why=why, **facts)
    facts |= {"max_abs": _largest(reference, candidate), "rms": relative_rms(reference, candidate), "budget": gate.budget}
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
        why = f"of the five best classes {ranks:.0%} are the same, less than {gate.top5:.0%}"
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
    signal = signal if signal > _FAINT * size else size  # of an output that does not depend on the input, the output itself
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


def unusable(reference: Sequence[Array], task: Task, noise: Sequence[float]) -> str | None:
    """Why agreement with an output that the model is for would prove nothing; None where every one tells rows apart."""
    judged = task.judged
    for index in judged:
        known = noise[index] if index < len(noise) and reference[index].dtype.kind == "f" else 0.0
        if why := unusable_reference(reference[index], known):
            return f"output {task.heads[index].output}: {why}" if len(judged) > 1 else why
    return None


def unusable_reference(reference: Array, noise: float) -> str | None:
    """Why agreement with this output would prove nothing; None when its rows differ by more than noise."""
    if reference.dtype.kind != "f":
        return "the model gives every row the same result" if (reference == reference[:1]).all() else None
    if not np.isfinite(reference).all():
        return "the model itself returns NaN or infinity on these inputs"
    signal, scale = _signal(reference), float(np.abs(reference).max(initial=0.0))
    if signal <= 1e-7 * scale or (signal <= 2 * noise and signal <= _FAINT * scale):
        return "the model's output does not depend on its input (a zero-initialized head?), so agreement proves nothing"
    if _NOISE_FACTOR * noise > signal / 2:
        return f"the model amplifies rounding: eager itself varies by {noise:.1e} where rows differ by {signal:.1e}"
    return None


def _tolerance(reference: Array, gate: Gate, noise: float) -> float:
    scale = float(np.abs(reference).max(initial=0.0))
    if gate.tolerance is not None:
        return gate.tolerance * scale
    return max(_NOISE_FACTOR * noise, _SIGNAL_SHARE * _signal(reference), _ROUNDING * scale)


def _noise(gate: Gate, index: int) -> float:
    return gate.noise[index] if index < len(gate.noise) else 0.0


def _signal(reference: Array) -> float:
    """The largest difference between rows in one position."""
    return float(np.ptp(reference, axis=0).max(initial=0.0)) if len(reference) > 1 else 0.0


def _largest(reference: Array, candidate: Array) -> float:
    wanted: Array = reference.astype(np.float64)
    given: Array = candidate.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (wanted == given) | (np.isnan(wanted) & np.isnan(given))  # also where both are the same infinity
        difference = np.where(same, 0.0, np.abs(wanted - given))
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def _shape_mismatch(reference: Sequence[Array], candidate: Sequence[Array]) -> str | None:
    wanted, given = ([(value.shape, value.dtype.name) for value in side] for side in (reference, candidate))
    return None if wanted == given else f"outputs are {given}, expected {wanted}"
