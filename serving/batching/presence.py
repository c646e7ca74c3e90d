"""Which instances of a model can compute now: one that is several processes cannot while it lacks one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ticket import Instance


def processes(instance: Instance) -> list[Any]:
    """The sets of processes that compute for its sessions, each once: `trouble` says why one is not whole, if it is not."""
    found = [getattr(session, "ranks", None) for session in instance.values()]
    return list({id(ranks): ranks for ranks in found if ranks is not None}.values())


def trouble(instance: Instance) -> str:
    """Why an instance cannot compute; empty where it can."""
    return next((ranks.trouble for ranks in processes(instance) if ranks.trouble), "")


class Presence:
    """What a batcher asks of its instances, with its lock held. Models of one process, which most are, cost nothing."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances  # the batcher's own, which changes
        self._of_processes = any(map(processes, instances))

    def able(self, active: int) -> list[int]:
        """Of the first so many instances those that can compute; all of them where none can, so that requests are told why."""
        numbers = list(range(active))
        if not self._of_processes:
            return numbers
        return [number for number in numbers if not trouble(self._instances[number])] or numbers

    def others(self, number: int, active: int) -> bool:
        """Whether another one can."""
        return any(not trouble(self._instances[other]) for other in range(active) if other != number)
