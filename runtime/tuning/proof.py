"""Is a session right at a batch size, and does it stay so?

Rows come in another order, in a full batch and in a ragged one; rows of very different magnitude, and one of NaN, stand beside
each other, and must come out as they do alone; and what was computed first is computed again after other rows, from another
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ...errors import BackendError
from ..artifact.agreement import Array
from ..artifact.lossy_parity import beyond_lossy, wrong_scale
from ..artifact.parity import Gate, beyond, tolerances
from ..base.session import Session
from .reference import Reference, one_by_one

# What rows beside each other are multiplied by; the first two are a batch of two. A kernel that reads beyond the end of a row
# multiplies what it finds by zero, which only NaN shows: torch's bf16 products on AMX, where the depth is no multiple of 32.
_FACTORS = (1.0, np.nan, 100.0, 0.01)
# Of a row's own range: another batch size may choose other kernels, whose rounding a lossy precision shows.
_LEAK, _LEAK_LOSSY = 1e-3, 0.05
_NOISE_FACTOR = 8.0
# Times the tolerance: what waits for a rare input is not small, and such inputs are where a network rounds in its own way.
_RARE, _SOME = 10.0, 4


def wrong_at(
    session: Session, reference: Reference, batch: int, gate: Gate, *, lossy: bool, thorough: bool = True
) -> str | None:
    """What a session does wrong with so many rows; None where nothing is. Raises BackendError when it fails.

    A lossy one without tolerance is held to the gate's root mean square. Not `thorough`, a full batch and a ragged one are
    compared and no more.
    """
    order = np.random.default_rng(batch).permutation(batch) % len(reference.inputs[0])
    inputs, wanted = _chosen(reference.inputs, order), _chosen(reference.outputs, order)

    def wrong(given: list[Array], rows: int) -> str | None:
        expected = [value[:rows] for value in wanted]
        # A few rows do not tell what the variation between rows is, so the others stand beside them.
        if lossy and gate.tolerance is None:
            more = reference.outputs
            usual = [_as_usual(*values) for values in zip(expected, given, more, strict=True)]
            both = [[np.concatenate(pair) for pair in zip(side, more, strict=True)] for side in (expected, usual)]
            share = np.sqrt(rows / (rows + len(reference.inputs[0])))
            why = beyond_lossy(both[0], both[1], Gate(rms=gate.rms * share)) or _wrong_scales(expected, given, gate)
        else:
            why = beyond(expected, given, tolerances(reference.outputs, gate))
            if why and not lossy and reference.learn_noise(given, order[:rows]):
                why = beyond(expected, given, tolerances(reference.outputs, replace(gate, noise=reference.noise)))
        return why and f"with {rows} rows in another order: {why}"

    first = session.run(inputs)
    if why := wrong(first, batch):
        return why
    ragged = batch - 1
    if ragged and (why := wrong(session.run([value[:ragged] for value in inputs]), ragged)):
        return why
    if not thorough:
        return None
    if why := _leaks(session, reference, order, lossy=lossy):
        return f"with {batch} rows: {why}"
    with ThreadPoolExecutor(1) as other:
        again = other.submit(session.run, inputs).result()
    if why := wrong(again, batch):
        return f"called again after other rows, {why}"
    return None


def wrong_on_rare(session: Session, reference: Reference, gate: Gate, *, lossy: bool, batch: int) -> str | None:
    """What a session does wrong, run with `batch` rows, on inputs that few images are; None where nothing is.

    A lossy one only has to be finite there: its ranges are those of images. Raises BackendError when it fails.
    """
    rare = reference.rare
    if rare is None:
        return None
    parts = [
        session.run([value[at : at + batch].copy() for value in rare.inputs]) for at in range(0, len(rare.inputs[0]), batch)
    ]
    actual = [np.concatenate(values) for values in zip(*parts, strict=True)]
    limits = tolerances(reference.outputs, gate)
    for index, (wanted, given, limit) in enumerate(zip(rare.outputs, actual, limits, strict=True)):
        if limit is None:
            continue
        at = f"on inputs that are rare (black, saturated, of one color, stark or faint) output {index}"
        if (broken := _rows(np.isfinite(wanted) & ~np.isfinite(given), np.any)).any():
            return f"{at} is NaN or infinite in {broken.sum()} of {len(broken)} rows where the model's own is not"
        if lossy:
            continue
        if (hidden := _rows(np.isnan(wanted) & ~np.isnan(given), np.any)).any():  # as a ReLU that takes NaN for 0
            return f"{at} is a number in {hidden.sum()} of {len(hidden)} rows where the model's own is NaN"
        finite = np.isfinite(wanted) & np.isfinite(given)
        expected, found = (np.where(finite, value, 0).astype(np.float64) for value in (wanted, given))
        usual = float(np.abs(reference.outputs[index]).max(initial=0.0)) or 1.0
        allowed = _RARE * limit * np.maximum(1.0, _rows(np.abs(expected), np.max) / usual)
        off = _rows(np.abs(found - expected), np.max)
        if len(beyond_it := np.flatnonzero(off > allowed)):
            some = beyond_it[np.argsort(-off[beyond_it])][:_SOME]
            noise = rare.noise(_chosen(rare.inputs, some), _chosen(rare.outputs, some))[index]
            if (off[some] > np.maximum(allowed[some], _RARE * _NOISE_FACTOR * noise)).any():
                return f"{at} differs by {off[some[0]]:.2e} in one of {len(off)} rows, more than the tolerance"
    return None


def _rows(values: Array, reduce: Callable[..., Array]) -> Array:
    """One value for each row."""
    return reduce(values.reshape(len(values), -1), axis=1)


def _as_usual(wanted: Array, given: Array, outputs: Array) -> Array:
    """What was given, where rows that stand out by more than `outputs` vary are off by as much less: rounding is a share of
    what it rounds, and one such row among few would speak for all."""
    if wanted.dtype.kind != "f" or wanted.shape != given.shape:
        return given
    middle = outputs.mean(axis=0, dtype=np.float64)
    signal = float(np.sqrt(np.mean(np.square(outputs - middle))))
    size = np.sqrt(_rows(np.square(wanted - middle), np.mean))
    shrunk = np.divide(signal, size, out=np.ones_like(size), where=size > signal).reshape(-1, *[1] * (wanted.ndim - 1))
    return (wanted + (given - wanted) * shrunk).astype(given.dtype)


def _wrong_scales(wanted: Sequence[Array], given: Sequence[Array], gate: Gate) -> str | None:
    floats = [index for index, value in enumerate(wanted) if value.dtype.kind == "f"]
    whys = (f"output {index}: {why}" for index in floats if (why := wrong_scale(wanted[index], given[index], gate)))
    return next(whys, None)


def _leaks(session: Session, reference: Reference, order: Array, *, lossy: bool) -> str | None:
    """Whether a row comes out otherwise than alone beside others: a hundred times larger or smaller ones, and one of NaN."""
    count = min(len(_FACTORS), len(reference.inputs[0]))
    mixed = [_scaled(value[:count]) for value in reference.inputs]
    whole = [row for row in range(count) if not np.isnan(_FACTORS[row])]
    alone = one_by_one(session, _chosen(mixed, np.array(whole)))
    order = order % count
    if np.isnan(_FACTORS[order[0]]):
        order = np.roll(order, 1)  # so that there is a row before it
    if not all(_runs(session, [value[row : row + 1] for value in mixed]) for row in range(count) if row not in whole):
        order = np.array(whole)[order % len(whole)]  # the model itself looks whether there is a NaN, and raises
    together = session.run(_chosen(mixed, order))
    for index, (single, given) in enumerate(zip(alone, together, strict=True)):
        if single.dtype.kind != "f":
            continue
        scale = float(np.abs(reference.outputs[index]).max(initial=0.0)) or 1.0
        least = _LEAK_LOSSY if lossy else max(_LEAK, _NOISE_FACTOR * reference.noise[index] / scale)
        for row, (which, actual) in enumerate(zip(order, given, strict=True)):
            if which not in whole:
                continue
            expected = single[whole.index(which)]
            finite = np.isfinite(expected)
            size = float(np.abs(expected[finite]).max(initial=0.0)) if finite.any() else 0.0
            if not np.allclose(actual, expected, rtol=0, atol=least * size, equal_nan=True):
                return f"row {row} of output {index} depends on the rows beside it"
    return None


def _runs(session: Session, inputs: list[Array]) -> bool:
    try:
        session.run(inputs)
    except BackendError:
        return False
    return True


def _scaled(value: Array) -> Array:
    if value.dtype.kind != "f":
        return value
    factors = np.array(_FACTORS[: len(value)], value.dtype).reshape(-1, *[1] * (value.ndim - 1))
    return value * factors


def _chosen(values: Sequence[Array], order: Array) -> list[Array]:
    return [np.ascontiguousarray(value[order]) for value in values]
