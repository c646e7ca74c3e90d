"""How many bytes of requests are in memory, over all transports together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import OverloadedError


class ByteBudget:
    """At most `limit` bytes are held at a time, and by one client at most `share`. For one event loop only; it has no lock."""

    def __init__(self, limit: int, share: int | None = None) -> None:
        self._limit = limit
        self._share = limit if share is None else share
        self._clients: Counter[str] = Counter()
        self.held = 0

    def take(self, count: int, client: str = "") -> None:
        """Hold so many bytes more, to be given back. Raises OverloadedError, and holds nothing, when that is too much."""
        if self.held + count > self._limit:
            raise OverloadedError("the requests in memory have too many bytes; try again later")
        if self._clients[client] + count > self._share:
            raise OverloadedError("this client's requests in memory have too many bytes; send fewer at a time")
        self._clients[client] += count
        self.held += count

    def give(self, count: int, client: str = "") -> None:
        """Give back so many bytes that were taken."""
        self.held -= count
        self._clients[client] -= count
        if not self._clients[client]:
            del self._clients[client]

    @contextmanager
    def hold(self, count: int, client: str = "") -> Iterator[None]:
        """Hold so many bytes until the block ends."""
        self.take(count, client)
        try:
            yield
        finally:
            self.give(count, client)
