"""The queues between the stages of a job, which tell the stages' clocks who waits at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spdl.pipeline import AsyncQueue

from ...runtime.artifact.pipeline.shares import State
from .stages import StageClock

Ends = tuple[StageClock | None, StageClock | None]
"""The clocks of the stages that put into a queue and take from it; None where nobody asks."""


class WatchedQueue(AsyncQueue):  # type: ignore[misc]
    """Whoever takes from it while it is empty is starved, whoever puts into it while it is full is blocked."""

    def __init__(self, info: Any, *, buffer_size: int, ends: Ends) -> None:
        super().__init__(info, buffer_size=buffer_size)
        self._before, self._behind = ends

    async def get(self) -> object:
        """As an `asyncio.Queue`'s."""
        if self._behind is None or not self.empty():
            return await super().get()
        with self._behind.spend(State.STARVED):
            return await super().get()

    async def put(self, item: object) -> None:
        """As an `asyncio.Queue`'s."""
        if self._before is None or not self.full():
            return await super().put(item)
        with self._before.spend(State.BLOCKED):
            return await super().put(item)

    def fill(self) -> tuple[int, int]:
        """How many items it holds, and for how many it has room."""
        return self.qsize(), self.maxsize


class Queues:
    """Makes the queues of one pipeline; `ends` says by the name of the stage that puts into a queue whose it is."""

    def __init__(self, ends: Mapping[str, Ends]) -> None:
        self._ends = ends
        self.made: dict[str, WatchedQueue] = {}

    def __call__(self, info: Any, *, buffer_size: int) -> AsyncQueue:
        """See spdl's `queue_class`."""
        ends = self._ends.get(info.stage_name)
        if ends is None:  # also that of the results, which spdl empties quicker where it is one of its own
            return AsyncQueue(info, buffer_size=buffer_size)
        self.made[info.stage_name] = queue = WatchedQueue(info, buffer_size=buffer_size, ends=ends)
        return queue
