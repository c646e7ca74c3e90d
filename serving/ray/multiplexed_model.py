"""A model that a replica holds until Ray Serve drops it for another."""

from __future__ import annotations

import asyncio
import logging

from ..models.leases import Leases
from ..models.repository import ModelRepository

__all__ = ["MultiplexedModel"]

log = logging.getLogger("headrace.serving")


class MultiplexedModel:
    """A tensor model with its companions. A request uses it between `leases.acquire()` and `leases.release()`.

    Ray Serve awaits `__del__` of what it drops. Here that is an attribute, and no method of the class, so that Python does not
    call it another time when the object goes away.
    """

    def __init__(self, group: str, repository: ModelRepository, drain_seconds: float) -> None:
        self.group = group
        self.leases = Leases()
        self._repository = repository
        self._drain_seconds = drain_seconds
        self.__del__ = self.leave

    async def leave(self) -> None:
        """Wait for the requests that use the model, for `drain_seconds` at most, and unload it."""
        if not await asyncio.to_thread(self.leases.retire, self._drain_seconds):
            log.warning("%s is dropped while it is in use after %g s", self.group, self._drain_seconds)
        await self._repository.unload_model(self.group)
