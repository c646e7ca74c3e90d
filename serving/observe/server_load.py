"""What the processes of a server take of the machine: processor time, memory, and since when they run."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import psutil

_FRESH_SECONDS = 0.8


class ServerLoad:
    """Of a process and all below it; in a front end, of the supervisor that started it and all below that. Any thread may ask;
    what is younger than a second is not looked up again, however many ask."""

    def __init__(self, *, child: bool) -> None:
        own = psutil.Process()
        self._root = (own.parent() or own) if child else own
        self._lock = threading.Lock()
        self._looked = 0.0
        self._last: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Seconds of the processors since the start, resident bytes, and what there is of both; seconds since the start."""
        with self._lock:
            if time.monotonic() - self._looked >= _FRESH_SECONDS:
                self._last, self._looked = self._look(), time.monotonic()
            return self._last

    def _look(self) -> dict[str, Any]:
        seconds, resident, count = 0.0, 0, 0
        memory = psutil.virtual_memory()
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (self._root, *self._root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                    times = process.cpu_times()
                    seconds += times.user + times.system
                    resident += process.memory_info().rss
                    count += 1
        return {
            "uptime_seconds": round(time.time() - self._root.create_time(), 1),
            "processes": count,
            "cpu_seconds": round(seconds, 2),
            "memory_bytes": resident,
            "machine_cores": _cores(),
            "machine_cpu_percent": psutil.cpu_percent(None),
            "machine_memory_bytes": memory.total,
            "machine_memory_free_bytes": memory.available,
        }


def _cores() -> int:
    from ...runtime.base.fingerprint import available_cores

    return available_cores()
