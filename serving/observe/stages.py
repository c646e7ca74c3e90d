"""What a request spends its time on: noted where it happens, for whoever takes the request in and wants to know."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from ..batching.ticket import Ticket


class Stage(NamedTuple):
    """One part of a request's time, from `begin` to `end` in seconds on the monotonic clock."""

    name: str
    begin: float
    end: float
    attributes: dict[str, int]


# Where the running request's stages go; None when nobody wants to know, so that nothing is noted.
stages: ContextVar[list[Stage] | None] = ContextVar("stages", default=None)


def note_batch(ticket: Ticket, now: float) -> None:
    """How long it waited, and the batch in which it ran, if it did before `now`."""
    noted = stages.get()
    if noted is None:
        return
    ran = ticket.ended > 0
    noted.append(Stage("queue", ticket.queued, ticket.began if ran else now, {}))
    if ran:
        attributes = {"headrace.batch.size": ticket.batch, "headrace.request.rows": ticket.rows}
        noted.append(Stage("compute", ticket.began, ticket.ended, attributes))
