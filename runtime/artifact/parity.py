"""Do two computations agree, and does their agreement prove anything? numpy only.

Lossless candidates (same precision, other order of operations) are held to a tolerance that comes from the model's own
eager noise. Lossy ones (bf16) are judged by what a classifier is for: the top-1 class on real images, and accuracy with labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_STATUSES = ("passed", "failed", "not-run")


@dataclass(frozen=True, kw_only=True)
class ParityRecord:
    """The outcome of one comparison. `max_abs` is in the outputs' units, `tolerance` is what it was held to.

    `top1_agreement` is the share of rows whose largest output is the same class. `why` explains any status but "passed",
    and for a passed lossy check says which gate was applied.
    """

    status: str
    max_abs: float | None = None
    top1_agreement: float | None = None
    tolerance: float | None = None
    accuracy_drop: float | None = None
    rows: int = 0
    batches: tuple[int, ...] = ()
    why: str | None = None

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(f"parity: status must be one of {', '.join(_STATUSES)}; got {self.status!r}")

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "batches": list(self.batches)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ParityRecord:
        return cls(**{**data, "batches": tuple(data["batches"])})


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a candidate is held to.

    `tolerance` is the largest accepted |difference| / max |reference|, or None: then `noise` (one value per output, the model's
    own eager noise in the outputs' units) sets it. For a lossy precision: least top-1 agreement, and most points of
    accuracy that may be lost where labels are given. The numbers are the project's gate for "auto".
    """

    tolerance: float | None = None
    noise: tuple[float, ...] = ()
    agreement: float = 0.995
    agreement_with_labels: float = 0.99
    accuracy_points: float = 0.1
    least_images: int = 64
    relative_error: float = 0.05


# A lossless candidate may differ by this many times the noise, and always by this share of what tells rows apart.
_NOISE_FACTOR = 8.0
_SIGNAL_SHARE = 1e-4
_ROUNDING = 4e-6
_FAINT = 1e-3  # of the output's scale: rows that differ by more do depend on the input, whatever the noise


def compare(
    reference: Sequence[Array], candidate: Sequence[Array], gate: Gate, *, primary: int = 0, batches: Sequence[int] = ()
) -> ParityRecord:
    """Hold a lossless candidate's outputs, each [rows, ...], to the reference's. At least two different rows are needed.

    Never passes when the primary output is the same for all rows, or when the tolerance would hide what tells them apart.
    """
    rows = len(reference[primary])
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := _shape_mismatch(reference, candidate):
        return ParityRecord(status="failed", why=why, **facts)
    floats = [index for index, value in enumerate(reference) if value.dtype.kind == "f"]
    differences = {index: _largest(reference[index], candidate[index]) for index in floats}
    tolerances = {index: _tolerance(reference[index], gate, _noise(gate, index)) for index in floats}
    facts |= {
        "max_abs": max(differences.values(), default=0.0),
        "top1_agreement": top1_agreement(reference[primary], candidate[primary]),
        "tolerance": tolerances.get(primary),
    }
    if why := unusable_reference(reference[primary], _noise(gate, primary) if primary in floats else 0.0):
        return ParityRecord(status="failed", why=why, **facts)
    for index in floats:
        if not differences[index] <= tolerances[index]:
            why = f"output {index} differs by {differences[index]:.2e}, more than the tolerance {tolerances[index]:.2e}"
            return ParityRecord(status="failed", why=why, **facts)
    for index in set(range(len(reference))) - set(floats):
        share = float(np.mean(reference[index] == candidate[index]))
        if share < gate.agreement_with_labels:
            return ParityRecord(status="failed", why=f"output {index} agrees in {share:.1%} of its values", **facts)
    return ParityRecord(status="passed", **facts)


def compare_lossy(
    reference: Array, candidate: Array, gate: Gate, *, labels: Array | None = None, batches: Sequence[int] = ()
) -> ParityRecord:
    """Judge a lossy candidate's class scores [images, classes] on real images: by top-1 class and, with labels, accuracy."""
    reference, candidate = flat_scores(reference), flat_scores(candidate)
    rows = len(reference)
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := _shape_mismatch([reference], [candidate]):
        return ParityRecord(status="failed", why=why, **facts)
    agreement = top1_agreement(reference, candidate)
    facts |= {"max_abs": _largest(reference, candidate), "top1_agreement": agreement}
    if agreement is None:
        return ParityRecord(status="failed", why="top-1 agreement needs at least two class scores per row", **facts)
    if rows < gate.least_images:
        why = f"a lossy precision needs at least {gate.least_images} real images to be judged, got {rows}"
        return ParityRecord(status="failed", why=why, **facts)
    expected, actual = reference.argmax(axis=1), candidate.argmax(axis=1)
    if (expected == expected[0]).all():
        return ParityRecord(
            status="failed", why="the model gives every image the same class, so agreement proves nothing", **facts
        )
    least = gate.agreement if labels is None else gate.agreement_with_labels
    if agreement < least:
        why = f"top-1 agrees on {agreement:.2%} of {rows} images, less than {least:.1%}"
        return ParityRecord(status="failed", why=why, **facts)
    if labels is None:
        return ParityRecord(status="passed", why=f"top-1 agreement of at least {least:.1%} on {rows} images", **facts)
    drop = 100 * float(np.mean(expected == labels) - np.mean(actual == labels))
    facts["accuracy_drop"] = drop
    if drop > gate.accuracy_points + 1e-9:
        why = f"accuracy falls by {drop:.2f} points on {rows} images, more than {gate.accuracy_points}"
        return ParityRecord(status="failed", why=why, **facts)
    return ParityRecord(status="passed", why=f"top-1 agreement and accuracy on {rows} labeled images", **facts)


def compare_relative(
    reference: Sequence[Array], candidate: Sequence[Array], gate: Gate, *, primary: int = 0, batches: Sequence[int] = ()
) -> ParityRecord:
    """Judge a pinned lossy candidate without real images, by error as a share of the outputs' range; the record says so."""
    record = compare(reference, candidate, replace(gate, tolerance=gate.relative_error), primary=primary, batches=batches)
    if not record.passed:
        return record
    return replace(record, why=f"no real images were given: held to {gate.relative_error:.0%} of the outputs' range only")


def top1_agreement(reference: Array, candidate: Array) -> float | None:
    """The share of rows [rows, classes] whose largest score is the same class; None unless there are two classes or more."""
    reference, candidate = flat_scores(reference), flat_scores(candidate)
    if reference.ndim != 2 or reference.shape[1] < 2 or reference.dtype.kind != "f":
        return None
    return float(np.mean(reference.argmax(axis=1) == candidate.argmax(axis=1)))


def flat_scores(output: Array) -> Array:
    """[rows, classes] of the [rows, classes, 1, 1] that a fully convolutional network gives; any other array as it is."""
    one_each = output.ndim > 2 and output.size == output.shape[0] * output.shape[1]
    return output.reshape(output.shape[:2]) if one_each else output


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
    difference = np.abs(reference.astype(np.float64) - candidate.astype(np.float64))
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def _shape_mismatch(reference: Sequence[Array], candidate: Sequence[Array]) -> str | None:
    wanted, given = ([(value.shape, value.dtype.name) for value in side] for side in (reference, candidate))
    return None if wanted == given else f"outputs are {given}, expected {wanted}"
