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

    `top1_agreement` is the share of rows whose largest output is the same class, `top5_agreement` the share of the five largest
    that are among the candidate's. `rms` is the root mean square of the error over that of what tells rows apart. `why`
    explains any status but "passed", and for a passed lossy check says which gate was applied.
    """

    status: str
    max_abs: float | None = None
    top1_agreement: float | None = None
    tolerance: float | None = None
    accuracy_drop: float | None = None
    rms: float | None = None
    top5_agreement: float | None = None
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
        agreements = [share for share in (self.top1_agreement, other.top1_agreement) if share is not None]
        return replace(
            self,
            status=self.status if other.passed else other.status,
            max_abs=max(self.max_abs or 0.0, other.max_abs or 0.0),
            top1_agreement=min(agreements, default=None),
            rows=self.rows + other.rows,
            why=self.why or other.why if other.passed else other.why,
        )

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
    of another scale: most `rms` and least top-5 agreement, which `lossy_gate` sets. The numbers are the project's gate for
    "auto".
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


# Most rms and least top-5 agreement by precision, 1.5 to 4 times what trained weights need on images hard to tell apart:
# EfficientNet-Lite0 on crops of two photos is off by 0.7 % in fp16, 7.5 % in bf16 and 17 % in int8, and keeps 99, 93 and 86 %.
_LOSSY_LIMITS = {"fp16": (0.03, 0.95), "bf16": (0.15, 0.85)}


def lossy_gate(dtype: str) -> Gate:
    """What a candidate that computes in "bf16", "fp16", "int8" or "fp8" is held to."""
    rms, top5 = _LOSSY_LIMITS.get(dtype, (Gate.rms, Gate.top5))
    return Gate(rms=rms, top5=top5)


# A lossless candidate may differ by this many times the noise, and always by this share of what tells rows apart.
_NOISE_FACTOR = 8.0
_SIGNAL_SHARE = 1e-4
_ROUNDING = 4e-6
_LEAST_EQUAL, _LEAST_EQUAL_LOSSY = 0.99, 0.9  # of the values of outputs that are whole numbers
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
    limits = tolerances(reference, gate)
    facts |= {
        "max_abs": max((_largest(reference[index], candidate[index]) for index in floats), default=0.0),
        "top1_agreement": top1_agreement(reference[primary], candidate[primary]),
        "tolerance": limits[primary],
    }
    if why := unusable_reference(reference[primary], _noise(gate, primary) if primary in floats else 0.0):
        return ParityRecord(status="failed", why=why, **facts)
    why = beyond(reference, candidate, limits)
    return ParityRecord(status="failed" if why else "passed", why=why, **facts)


def tolerances(reference: Sequence[Array], gate: Gate) -> list[float | None]:
    """How far each output may be off, in its units; None for those that are no floats."""
    floats = [value.dtype.kind == "f" for value in reference]
    return [_tolerance(value, gate, _noise(gate, index)) if floats[index] else None for index, value in enumerate(reference)]


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
    return None


def compare_lossy(
    reference: Array, candidate: Array, gate: Gate, *, labels: Array | None = None, batches: Sequence[int] = ()
) -> ParityRecord:
    """Judge a lossy candidate's class scores [images, classes] on real images: by top-1 class and, with labels, accuracy."""
    reference, candidate = flat_scores(reference), flat_scores(candidate)
    rows = len(reference)
    facts: dict[str, Any] = {"rows": rows, "batches": tuple(batches)}
    if why := _shape_mismatch([reference], [candidate]):
        return ParityRecord(status="failed", why=why, **facts)
    agreement, error, ranks = (
        top1_agreement(reference, candidate),
        relative_rms(reference, candidate),
        _top5(reference, candidate),
    )
    facts |= {"max_abs": _largest(reference, candidate), "top1_agreement": agreement, "rms": error, "top5_agreement": ranks}
    if why := _not_finite(reference, candidate):
        return ParityRecord(status="failed", why=why, **facts)
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
    if not error <= gate.rms:
        why = f"scores are off by {error:.0%} of what tells images apart (root mean square), more than {gate.rms:.0%}"
        return ParityRecord(status="failed", why=why, **facts)
    if ranks is not None and ranks < gate.top5:
        why = f"of the five best classes {ranks:.0%} are the same, less than {gate.top5:.0%}"
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


def _top5(reference: Array, candidate: Array) -> float | None:
    """The share of the best classes, five or half of all, that are among the candidate's; None for fewer than four classes."""
    if reference.ndim != 2 or reference.shape[1] < 4:
        return None
    count = min(5, reference.shape[1] // 2)
    wanted, given = (np.argsort(-value, axis=1)[:, :count] for value in (reference, candidate))
    return float(np.mean([len(set(a) & set(b)) / count for a, b in zip(wanted, given, strict=True)]))


def _not_finite(reference: Array, candidate: Array) -> str | None:
    broken = np.isfinite(reference) & ~np.isfinite(candidate)
    rows = int(broken.reshape(len(broken), -1).any(axis=1).sum())
    return f"{rows} of {len(broken)} rows are NaN or infinite where the model's own are not" if rows else None


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
    wanted: Array = reference.astype(np.float64)
    given: Array = candidate.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (wanted == given) | (np.isnan(wanted) & np.isnan(given))  # also where both are the same infinity
        difference = np.where(same, 0.0, np.abs(wanted - given))
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def _shape_mismatch(reference: Sequence[Array], candidate: Sequence[Array]) -> str | None:
    wanted, given = ([(value.shape, value.dtype.name) for value in side] for side in (reference, candidate))
    return None if wanted == given else f"outputs are {given}, expected {wanted}"
