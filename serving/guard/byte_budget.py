"""How many bytes of requests are in memory, over all transports together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import OverloadedError


class ByteBudget:
    """At most `limit` bytes are held at a time. For one event loop only; it has no lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    def take(self, count: int) -> None:
        """Hold so many bytes more, to be given back. Raises OverloadedError, and holds nothing, when that is too much."""
        if self._held + count > self._limit:
            raise OverloadedError("the requests in memory have too many bytes; try again later")
        self._held += count

    def give(self, count: int) -> None:
        """Give back so many bytes that were taken."""
        self._held -= count

    @contextmanager
    def hold(self, count: int) -> Iterator[None]:
        """Hold so many bytes until the block ends."""
        self.take(count)
        try:
            yield
        finally:
            self.give(count)
