"""How much memory a server's process may take for what only makes it quicker."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...runtime.base.memory import free_megabytes

MIB = 1 << 20
# Without a bound given, sessions that make it quicker may take this share of what was free when the models were ready.
_SHARE = 1 / 8


def resident_bytes() -> int:
    """What this process has in memory."""
    import psutil

    return int(psutil.Process().memory_info().rss)


class MemoryBound:
    """`limit` bytes of resident memory, or None for an eighth of what was free when the models were ready, beside theirs.

    Any thread may call any method. What is kept beyond the models' first sessions is counted.
    """

    def __init__(
        self,
        limit: int | None = None,
        *,
        resident: Callable[[], int] = resident_bytes,
        free: Callable[[], float] = free_megabytes,
    ) -> None:
        self.limit = limit
        self.resident = resident
        self._free = free
        self._lock = threading.Lock()
        self._kept = self._spare = 0

    def settle(self) -> None:
        """A model is ready."""
        with self._lock:
            self._spare = int(_SHARE * self._free() * MIB) + self._kept

    def keep(self, size: int) -> None:
        """Count something that stays; a negative size is of something that goes."""
        with self._lock:
            self._kept += size

    def room(self) -> int:
        """How many bytes more may be taken now; less than none where it is too much already."""
        with self._lock:
            room = self._spare - self._kept if self.limit is None else self.limit - self.resident()
        return min(room, int(self._free() * MIB))
