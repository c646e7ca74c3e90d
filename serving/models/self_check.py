"""Before a model version serves: rows whose answers are known go through a queue like its own, and come back as they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import BackendError, HeadraceError
from ...runtime.artifact.artifact import Artifact
from ...runtime.artifact.known_answers import differs, exchanged, known_rows
from ...runtime.artifact.plan import Plan
from ..batching.batcher import Batcher, Instance
from .warmup import heat

_SECONDS = 600.0  # for a request of the check: as long as it takes
# Rows of the requests that come together, and which they are: no batch is the one before it.
_ROUNDS = (((1, 2, 3), (0, 1, 2, 3, 4, 5)), ((3, 1, 2), (5, 3, 4, 0, 2, 1)))


def check_answers(
    artifact: Artifact, plan: Plan, instance: Instance, make_batcher: Callable[[], Batcher]
) -> list[np.ndarray] | None:
    """What an instance answers each of the known rows alone; None where there are none that the model takes.

    Raises BackendError where that is not what the model answered when it was packaged, which a plan in fp32 must give, or where
    requests that come together do not get their own rows back, each as it comes out alone. `make_batcher` makes a queue before
    sessions that it may not close.
    """
    rows = known_rows(artifact.signature)
    if rows is None:
        return None
    try:
        alone = _alone(instance, rows)
    except Exception:  # noqa: BLE001 - backends raise anything for values that a model does not take, which is no fault
        return None
    lossless = not any(choice.precision.lossy for choice in plan.choices.values())
    if artifact.answers is not None and lossless:
        primary = alone[int(artifact.answers["output"])]
        if why := differs(artifact.answers, primary):
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
    finally:
        batcher.close()
    return alone


def check_joining(artifact: Artifact, plan: Plan, joining: Instance, alone: Sequence[np.ndarray] | None) -> None:
    """Raise BackendError where sessions that are to serve beside others, which gave the answers `alone`, give other shapes or
    what is not finite, give a row another's answer, or in fp32 are off what was recorded of the model."""
    rows = known_rows(artifact.signature) if alone is not None else None
    if rows is None or alone is None:
        heat(joining, artifact.signature)
        return
    recorded = None if any(choice.precision.lossy for choice in plan.choices.values()) else artifact.answers
    for bucket, session in joining.items():
        order: np.ndarray = np.arange(-(-max(bucket, len(rows[0])) // bucket) * bucket) % len(rows[0])
        parts = [
            [output.copy() for output in session.run([value[order[at : at + bucket]] for value in rows])]
            for at in range(0, len(order), bucket)
        ]
        if any(len(output) != bucket for part in parts for output in part):
            raise BackendError(f"outputs of a batch of {bucket} have {len(parts[0][0])} rows")
        given = [np.concatenate(values) for values in zip(*parts, strict=True)]
        for own, other in zip(alone, given, strict=True):
            if own.shape[1:] != other.shape[1:] or own.dtype != other.dtype:
                raise BackendError(f"outputs of a batch of {bucket} are {other.dtype}{list(other.shape)}")
            if own.dtype.kind == "f" and (np.isfinite(own[order]) & ~np.isfinite(other)).any():
                raise BackendError(f"outputs of a batch of {bucket} are not finite")
        if (found := exchanged([value[order] for value in alone], given)) is not None:
            raise BackendError(f"row {found} of a batch of {bucket} got an answer that is not its own")
        if recorded is not None and (why := differs(recorded, given[int(recorded["output"])][: len(rows[0])])):
            raise BackendError(f"in a batch of {bucket}, {why}")


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
