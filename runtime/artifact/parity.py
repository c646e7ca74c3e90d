"""Do two computations agree, and does their agreement prove anything? numpy only.

Lossless candidates (same precision, other order of operations) are held to a tolerance that comes from the model's own
eager noise. Lossy ones are judged in lossy_parity.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..base.task import SINGLE_LABEL, Head, Task
from .agreement import Array, agreements

_STATUSES = ("passed", "failed", "not-run")
AGREEMENTS = ("top1_agreement", "decision_agreement", "cosine")
"""The fields of a record that tell how far an output agrees in what it is for."""
SCORES = Head(output="output", kind=SINGLE_LABEL)


@dataclass(frozen=True, kw_only=True)
class ParityRecord:
    """The outcome of one comparison. `max_abs` is in the outputs' units, `tolerance` is what it was held to.

    `top1_agreement` is the share of rows whose largest output is the same class, `top5_agreement` the share of the five largest
    that are among the candidate's, of those likelier than a guess; of several labels, `decision_agreement` is the share of
    those above their thresholds that are so by both, and of an embedding `cosine` is the lowest between a row of each. `rms` is
    the root mean square of the error over that of what tells rows apart. `accuracy_drop` is in points of accuracy, or of F1
    over several labels. `loss_bound` is the most that all images lose with that `confidence`, in points: of accuracy where
    labels are known, else of images that get the same answer; `budget` is the most that they may lose, where that was asked
    for. `why` explains any status but "passed", and for a passed lossy check says which gate was applied.
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


# A lossless candidate may differ by this many times the noise, and always by this share of what tells rows apart.
_NOISE_FACTOR = 8.0
_SIGNAL_SHARE = 1e-4
_ROUNDING = 4e-6
_LEAST_EQUAL = 0.99  # of the values of outputs that are whole numbers
FAINT = 1e-3  # of the output's scale: rows that differ by more do depend on the input, whatever the noise


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
    task = task or Task((SCORES,))
    primary = task.primary
    rows = len(reference[primary])
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := shape_mismatch(reference, candidate):
        return ParityRecord(status="failed", why=why, **facts)
    floats = [index for index, value in enumerate(reference) if value.dtype.kind == "f"]
    limits = tolerances(reference, gate)
    facts |= {
        "max_abs": max((largest_difference(reference[index], candidate[index]) for index in floats), default=0.0),
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
    if why := shape_mismatch(reference, candidate):
        return why
    for index, (wanted, given, limit) in enumerate(zip(reference, candidate, limits, strict=True)):
        if limit is not None and not (difference := largest_difference(wanted, given)) <= limit:
            return f"output {index} differs by {difference:.2e}, more than the tolerance {limit:.2e}"
        if limit is None and (share := float(np.mean(wanted == given))) < _LEAST_EQUAL:
            return f"output {index} agrees in {share:.1%} of its values"
    return None


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
    if signal <= 1e-7 * scale or (signal <= 2 * noise and signal <= FAINT * scale):
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


def largest_difference(reference: Array, candidate: Array) -> float:
    wanted: Array = reference.astype(np.float64)
    given: Array = candidate.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (wanted == given) | (np.isnan(wanted) & np.isnan(given))  # also where both are the same infinity
        difference = np.where(same, 0.0, np.abs(wanted - given))
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def shape_mismatch(reference: Sequence[Array], candidate: Sequence[Array]) -> str | None:
    wanted, given = ([(value.shape, value.dtype.name) for value in side] for side in (reference, candidate))
    return None if wanted == given else f"outputs are {given}, expected {wanted}"
