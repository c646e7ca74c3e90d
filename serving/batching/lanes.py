"""How many batches at a time an instance is given: one, or as many as its session has on the way at its quickest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ticket import Instance, Runner


def in_flight(instance: Instance) -> int:
    """The most that one of an instance's sessions says; a pipeline of several stages computes different batches in them."""
    return max(getattr(session, "in_flight", 1) for session in instance.values())


def lanes(instances: Sequence[Instance]) -> list[Instance]:
    """For each instance itself, and beside it as many of twins of its sessions that as many batches are on their way in it as
    it can use. The first lanes of all come before the second ones. Raises what a session does that cannot be opened again, and
    leaves none of the twins open then."""
    made = list(instances)
    opened: list[Runner] = []
    try:
        for number in range(1, max(map(in_flight, instances), default=1)):
            made.extend(_twins(instance, opened) for instance in instances if in_flight(instance) > number)
    except BaseException:
        for twin in opened:
            twin.close()
        raise
    return made


def _twins(instance: Instance, opened: list[Runner]) -> Instance:
    distinct: dict[int, Any] = {id(session): session for session in instance.values()}
    made: dict[int, Runner] = {}
    for number, session in distinct.items():
        made[number] = session.twin()
        opened.append(made[number])
    return {bucket: made[id(session)] for bucket, session in instance.items()}
