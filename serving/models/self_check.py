"""Before a model version serves: rows whose answers are known go through a queue like its own, and come back as they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import BackendError, HeadraceError
from ...runtime.artifact.artifact import Artifact
from ...runtime.artifact.known_answers import differs, exchanged, known_rows
from ...runtime.artifact.plan import Plan
from ..batching.batcher import Batcher, Instance

_SECONDS = 600.0  # for a request of the check: as long as it takes
# Rows of the requests that come together, and which they are: no batch is the one before it.
_ROUNDS = (((1, 2, 3), (0, 1, 2, 3, 4, 5)), ((3, 1, 2), (5, 3, 4, 0, 2, 1)))


def check_answers(artifact: Artifact, plan: Plan, instance: Instance, make_batcher: Callable[[], Batcher]) -> None:
    """Raise BackendError where an instance does not answer known rows as the model did when it was packaged, which a plan in
    fp32 must, or where requests that come together do not get their own rows back, each as it comes out alone.

    `make_batcher` makes a queue before sessions that it may not close.
    """
    rows = known_rows(artifact.signature)
    if rows is None:
        return
    try:
        alone = _alone(instance, rows)
    except Exception:  # noqa: BLE001 - backends raise anything for values that a model does not take, which is no fault
        return
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
