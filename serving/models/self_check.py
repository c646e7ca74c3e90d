"""Before a model version serves: rows whose answers are known go through a queue like its own, and come back as they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import BackendError, HeadraceError
from ...runtime.artifact.artifact import Artifact
from ...runtime.artifact.known_answers import differs, exchanged, of_another, unlike
from ...runtime.artifact.plan import Plan
from ..batching.batcher import Batcher
from ..batching.ticket import Instance, Runner
from .warmup import heat

_SECONDS = 600.0  # for a request of the check: as long as it takes
# Three times the error that int8 may have, since a row's may be larger than the whole's; another model is off by 1.4.
_LOSSLESS, _AMPLIFIED, _LOSSY = 0.01, 0.05, 0.75
# Rows of the requests that come together, and which they are: no batch is the one before it.
_ROUNDS = (((1, 2, 3), (0, 1, 2, 3, 4, 5)), ((3, 1, 2), (5, 3, 4, 0, 2, 1)))
_SINGLY = (0, 5)  # one after the other: however requests come together, these two batches are of one size


def check_answers(
    artifact: Artifact, plan: Plan, instance: Instance, make_batcher: Callable[[], Batcher]
) -> list[np.ndarray] | None:
    """What an instance answers each of the known rows alone; None where there are none that the model takes.

    Raises BackendError where that is not what the model answered when it was packaged, which a plan in fp32 must give and any
    other resemble, or where requests that come together do not get their own rows back, each as it comes out alone.
    `make_batcher` makes a queue before sessions that it may not close.
    """
    rows = artifact.known_rows()
    if rows is None:
        return None
    try:
        alone = _alone(instance, rows)
    except Exception:  # noqa: BLE001 - backends raise anything for values that a model does not take, which is no fault
        return None
    if artifact.answers is not None:
        primary = alone[int(artifact.answers["output"])]
        if why := (of_another if _lossy(plan) else differs)(artifact.answers, primary):
            raise BackendError(f"{why}; package the model again, or tune it here")
    batcher = make_batcher()
    try:
        for sizes, order in _ROUNDS:
            fitting = [min(size, batcher.table.largest) for size in sizes]
            chosen = list(order[: sum(fitting)])
            served = _served(batcher, [value[chosen] for value in rows], fitting)
            found = exchanged([value[chosen] for value in alone], served)
            if found is not None:
                raise BackendError(f"row {found} of requests that came together got an answer that is not its own")
        singly = [_served(batcher, [value[[row]] for value in rows], [1]) for row in _SINGLY]
        after = [np.concatenate(values) for values in zip(*singly, strict=True)]
        if exchanged([value[list(_SINGLY)] for value in alone], after) is not None:
            raise BackendError("a request got an answer that is not its own, but one of a request before it")
    finally:
        batcher.close()
    return alone


def check_joining(artifact: Artifact, plan: Plan, joining: Instance, alone: Sequence[np.ndarray] | None) -> None:
    """Raise BackendError where sessions that are to serve beside others, which gave the answers `alone`, give anything else:
    other shapes, what is not finite, other numbers, a row another's answer, or one that the rows beside it change."""
    rows = artifact.known_rows() if alone is not None else None
    if rows is None or alone is None:
        heat(joining, artifact.signature)
        return
    limit = likeness(artifact, plan)
    for bucket, session in joining.items():
        order: np.ndarray = np.arange(-(-max(bucket, len(rows[0])) // bucket) * bucket) % len(rows[0])
        wanted, beside = [value[order] for value in alone], np.arange(len(order)) % 2 == 1
        given = _in_batches(session, [value[order] for value in rows], bucket)
        if (found := exchanged(wanted, given)) is not None:
            raise BackendError(f"row {found} of a batch of {bucket} got an answer that is not its own")
        if why := unlike(alone, wanted, given, limit):
            raise BackendError(f"in a batch of {bucket}, {why}")
        if bucket > 1 and all(value.dtype.kind == "f" for value in rows):  # any share of NaN is NaN
            given = _in_batches(session, [_with_nan(value[order], beside) for value in rows], bucket)
            wanted, given = ([value[~beside] for value in side] for side in (wanted, given))
            if why := unlike(alone, wanted, given, limit):
                raise BackendError(f"in a batch of {bucket} beside rows of NaN, {why}")


def likeness(artifact: Artifact, plan: Plan) -> float:
    """By how much of what tells rows apart two sessions of a model may differ in a row (`unlike`): in fp32 by what another
    library rounds otherwise, which is more for a model that amplifies it, and so has no recorded answers."""
    if _lossy(plan):
        return _LOSSY
    return _LOSSLESS if artifact.answers is not None else _AMPLIFIED


def _lossy(plan: Plan) -> bool:
    return any(choice.precision.lossy for choice in plan.choices.values())


def _with_nan(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    changed = rows.copy()
    changed[chosen] = np.nan
    return changed


def _in_batches(session: Runner, rows: Sequence[np.ndarray], bucket: int) -> list[np.ndarray]:
    """The outputs of rows that are whole batches."""
    parts = [
        [output.copy() for output in session.run([value[at : at + bucket] for value in rows])]
        for at in range(0, len(rows[0]), bucket)
    ]
    if any(len(output) != bucket for part in parts for output in part):
        raise BackendError(f"outputs of a batch of {bucket} have {len(parts[0][0])} rows")
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def _alone(instance: Instance, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of each row, run by the session of the smallest bucket."""
    bucket = min(instance)
    answers = [
        [
            output[:1].copy()
            for output in instance[bucket].run([np.repeat(value[at : at + 1], bucket, axis=0) for value in rows])
        ]
        for at in range(len(rows[0]))
    ]
    return [np.concatenate(parts) for parts in zip(*answers, strict=True)]


def _served(batcher: Batcher, rows: Sequence[np.ndarray], sizes: Sequence[int]) -> list[np.ndarray]:
    """Outputs of requests of those sizes, which are all there before the first is queued."""
    tickets = [batcher.admit(size, timeout=_SECONDS) for size in sizes]
    at = 0
    for ticket in tickets:
        batcher.submit(ticket, [value[at : at + ticket.rows].copy() for value in rows])
        at += ticket.rows
    try:
        answers = [ticket.future.result() for ticket in tickets]
    except HeadraceError as error:
        raise BackendError(f"requests that came together failed: {error}") from error
    return [np.concatenate(parts) for parts in zip(*answers, strict=True)]
