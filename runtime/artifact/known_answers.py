"""What a model answered on rows that every machine can make: recorded when it was packaged, held against whatever serves it.

numpy only. The rows come of integer arithmetic, so that no library's random numbers decide them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...specs import Signature, TensorSpec
from .agreement import Array
from .lossy_parity import relative_rms

Span = tuple[float, float]
ROWS = 6
_SPAN = -2.0, 2.0  # of normalized images
_LOOKED_AT = 1_000_000  # numbers
_VALUES = 64  # of each row are recorded
_BLOCKS = 4  # per side: what tells one image from another is coarse
_LIMIT = 0.05  # of what tells rows apart: another machine rounds otherwise, another model is off by about 1.4
_LEAST_OWN, _LEAST_EQUAL, _OWN_SIZE = 4, 0.5, 0.1
_NOISE_SHARE, _FAINT = 0.01, 1e-4
_FLOATS = ("float16", "float32", "float64")


def known_rows(signature: Signature, span: Span | None = None) -> list[Array] | None:
    """[6, ...] for each input: coarse patterns under noise, which differ clearly; None where an input may be an index.

    Their floats lie within the `span`, that of the images by which the model was judged: beyond it int8 tells nothing apart.
    """
    if any(spec.dtype not in (*_FLOATS, "uint8") for spec in signature.inputs):
        return None
    return [_rows(spec, seed, span or _SPAN) for seed, spec in enumerate(signature.inputs)]


def span_of(images: Sequence[Array]) -> Span | None:
    """Between which numbers all but a hundredth at either end lie of the images that the one input of a model takes; None where
    that tells nothing."""
    if len(images) != 1 or images[0].dtype.kind != "f" or not images[0].size:
        return None
    some = images[0].reshape(-1)[:: -(-images[0].size // _LOOKED_AT)]
    low, high = (float(f"{value:.4g}") for value in np.percentile(some, (1, 99)))
    return (low, high) if np.isfinite([low, high]).all() and low < high else None


def recorded_span(recorded: Mapping[str, Any] | None) -> Span | None:
    """Within which the rows lie whose answers were recorded; None for the usual. Raises ValueError where it is none."""
    if recorded is None or recorded.get("span") is None:
        return None
    low, high = (float(value) for value in recorded["span"])
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"the span of known rows must be two numbers, the smaller one first, got {recorded['span']!r}")
    return low, high


def check_record(recorded: Mapping[str, Any] | None, signature: Signature) -> None:
    """Raise KeyError, TypeError or ValueError unless it is what was recorded of one of the outputs, or nothing."""
    if recorded is None:
        return
    recorded_span(recorded)
    values = np.array(recorded["values"], np.float64)
    if recorded["output"] not in range(len(signature.outputs)) or values.ndim != 2 or len(values) != ROWS:
        raise ValueError(f"answers of known rows are {ROWS} lists of numbers, of one of the outputs")
    if not np.isfinite(values).all():
        raise ValueError("answers of known rows must be finite")


def record(output: Array, noise: float) -> dict[str, Any] | None:
    """What to keep of the primary output [6, ...] for those rows; None where it would tell nothing: where rows come out alike,
    or no further apart than some times the model's own `noise`."""
    values = _chosen(output)
    if output.dtype.kind != "f" or not values.size or not np.isfinite(values).all():
        return None
    spread = float(np.ptp(values, axis=0).max())
    if not spread > max(noise / _NOISE_SHARE, _FAINT * float(np.abs(values).max())):
        return None
    return {"values": [[float(f"{value:.7g}") for value in row] for row in values.tolist()]}


def differs(recorded: Mapping[str, Any], output: Array) -> str | None:
    """How the primary output for the known rows differs from what was recorded of a lossless model; None where it does not."""
    wanted = np.array(recorded["values"])
    given = _chosen(output)
    if wanted.shape != given.shape:
        return f"answers of known rows have {given.size} values, {wanted.size} were recorded"
    error = relative_rms(wanted, given)
    if error <= _LIMIT:
        return None
    return f"answers of known rows are off by {error:.0%} of what tells rows apart from those that were recorded"


def of_another(recorded: Mapping[str, Any], output: Array) -> str | None:
    """Whether the primary output for the known rows, computed in a lossy precision, is not that of the recorded model: fewer
    than four of the six rows are nearest to what was recorded of themselves, which another model manages once in a hundred."""
    sides = [np.array(recorded["values"]), _chosen(output).astype(np.float64)]
    if sides[0].shape != sides[1].shape:
        return f"answers of known rows have {sides[1].size} values, {sides[0].size} were recorded"
    if not np.isfinite(sides[1]).all():
        return "answers of known rows are not finite"
    wanted, given = (side - side.mean(axis=0) for side in sides)
    nearest = np.linalg.norm(given[:, None] - wanted[None], axis=2).argmin(axis=1)
    own = int((nearest == np.arange(len(wanted))).sum())
    if own >= _LEAST_OWN:
        return None
    return f"of {len(wanted)} known rows {own} got answers that are nearest to their own recorded ones"


def unlike(alone: Sequence[Array], wanted: Sequence[Array], given: Sequence[Array], limit: float) -> str | None:
    """How what another session of one model gave for some rows differs from what was `wanted`; None where it does not.

    A row of an output may be off (root mean square) by `limit` times what tells rows apart in the outputs `alone`, or by as
    much of a tenth of its own size, where that is larger.
    """
    for index, (own, expected, actual) in enumerate(zip(alone, wanted, given, strict=True)):
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            kinds = f"{actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
            return f"output {index} is {kinds}"
        if expected.dtype.kind != "f":
            if (share := float(np.mean(expected == actual))) < _LEAST_EQUAL:
                return f"output {index} agrees in {share:.0%} of its values"
            continue
        known: Array
        right: Array
        found: Array
        known, right, found = (value.reshape(len(value), -1).astype(np.float64) for value in (own, expected, actual))
        finite = np.isfinite(right)
        if (finite & ~np.isfinite(found)).any():
            return f"output {index} is not finite"
        right, found = np.where(finite, right, 0), np.where(finite, found, 0)
        apart = float(np.sqrt(np.mean(np.square(known - known.mean(axis=0)))))
        off, size = (np.sqrt(np.mean(np.square(value), axis=1)) for value in (found - right, right))
        allowed = limit * np.fmax(apart, _OWN_SIZE * size)
        if (off > allowed).any():
            row = int((off - allowed).argmax())
            return f"row {row} of output {index} is off by {off[row]:.2e}, more than {allowed[row]:.2e}"
    return None


def exchanged(alone: Sequence[Array], served: Sequence[Array]) -> int | None:
    """The first of the rows whose served answer is nearer to another row's than to its own; None where there is none.

    Both are outputs [rows, ...] of the same session: each row run alone, and the rows as requests got them.
    """
    flat = [
        np.concatenate([value.reshape(len(value), -1).astype(np.float64) for value in side], axis=1) for side in (alone, served)
    ]
    apart, off = (np.linalg.norm(one[:, None] - flat[0][None], axis=2) for one in flat)
    told = apart > 0.1 * apart.max(initial=0.0)
    wrong = (told & ~(np.diagonal(off)[:, None] < off)).any(axis=1)
    return int(np.flatnonzero(wrong)[0]) if wrong.any() else None


def _chosen(output: Array) -> Array:
    values = output.reshape(len(output), -1)
    return values[:, np.unique(np.linspace(0, values.shape[1] - 1, min(_VALUES, values.shape[1])).astype(int))]


def _rows(spec: TensorSpec, seed: int, span: Span) -> Array:
    shape = (ROWS, *spec.row_shape)
    blocks = [np.arange(size) * _BLOCKS // size if size > _BLOCKS else np.arange(size) for size in spec.row_shape]
    coarse = _uniform((ROWS, *(_BLOCKS if size > _BLOCKS else size for size in spec.row_shape)), 2 * seed)
    values = 0.8 * coarse[np.ix_(np.arange(ROWS), *blocks)] + 0.2 * _uniform(shape, 2 * seed + 1)
    low, high = span
    return (
        np.floor(256 * values).astype(np.uint8) if spec.dtype == "uint8" else ((high - low) * values + low).astype(spec.dtype)
    )


def _uniform(shape: Sequence[int], seed: int) -> Array:
    """Values in [0, 1), by SplitMix64 (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        state = (np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return ((state >> np.uint64(11)).astype(np.float64) / 2**53).reshape(shape)
