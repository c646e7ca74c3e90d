"""What each model did over the last hour and the last day, and what happened to it: kept by the server, of bounded size."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...batching.statistics import LATENCY_BOUNDS
from ..models import ClassifyModel, DecodeModel, Model
from .plan_account import without_paths

STEP_SECONDS = 5.0
_HOUR, _DAY_STEP, _DAY = 720, 24, 720  # points of five seconds, how many of them make one of two minutes, and points of those
_EVENTS, _MODELS, _LONGEST_EVENT = 200, 200, 400
_SHARES = (0.5, 0.95, 0.99)
POINT = ("time", "seconds", "answered", "failed", "cached", "rows", "batches", "p50", "p95", "p99")
"""What the numbers of a point are: `seconds` before `time` so many requests were answered, and so on."""

_Counts = dict[str, Any]


@dataclass
class _Series:
    """One model's points of one length, and the counters that the next is the change from, by version."""

    points: deque[list[float | None]]
    before: dict[str, _Counts] = field(default_factory=dict)
    since: float = 0.0

    def add(self, now: float, counted: Mapping[str, _Counts]) -> None:
        changes = [_change(counts, self.before.get(version)) for version, counts in counted.items()]
        total = {name: sum(change[name] for change in changes) for name in ("answered", "failed", "cached", "rows", "batches")}
        latencies = [sum(column) for column in zip(*(change["latencies"] for change in changes), strict=True)]
        if self.since:
            self.points.append([round(now, 1), round(now - self.since, 2), *total.values(), *_quantiles(latencies)])
        self.before, self.since = dict(counted), now


class ServiceHistory:
    """Points by a model's name, so that they outlive its versions; and events, the latest last. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[str, tuple[_Series, _Series]] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self._ticks = 0

    def note(self, model: str, text: str, *, now: float | None = None) -> None:
        """Something happened to a model."""
        text = without_paths(text)[:_LONGEST_EVENT]
        with self._lock:
            self._events.append({"time": round(now or time.time(), 1), "model": model, "text": text})

    def look(self, models: Iterable[Model], *, now: float | None = None) -> None:
        """Add a point to each model that counts by itself. What does not serve now adds none, and keeps what it has."""
        now = now or time.time()
        counted: dict[str, dict[str, _Counts]] = {}
        for model in models:
            if not isinstance(model, (ClassifyModel, DecodeModel)):
                counted.setdefault(model.name, {})[model.version] = _counts(model)
        with self._lock:
            whole = self._ticks % _DAY_STEP == 0
            self._ticks += 1
            for name, versions in counted.items():
                if name not in self._series and len(self._series) >= _MODELS:
                    self._series.pop(next(iter(self._series)))
                hour, day = self._series.setdefault(name, (_Series(deque(maxlen=_HOUR)), _Series(deque(maxlen=_DAY))))
                hour.add(now, versions)
                if whole or not day.since:
                    day.add(now, versions)

    def to_json(self) -> dict[str, Any]:
        """All of it: `models` with their points of the last hour and of the last day, `events`, and what `point` holds."""
        with self._lock:
            models = {name: {"hour": list(hour.points), "day": list(day.points)} for name, (hour, day) in self._series.items()}
            return {"point": list(POINT), "step_seconds": STEP_SECONDS, "models": models, "events": list(self._events)}


def _counts(model: Model) -> _Counts:
    counted = model.statistics.snapshot()
    stages = counted["inference_stats"]
    return {
        "answered": stages["success"]["count"],
        "failed": stages["fail"]["count"],
        "cached": stages["cache_hit"]["count"],
        "rows": counted["inference_count"],
        "batches": counted["execution_count"],
        "latencies": model.statistics.latency_histogram()[0],
    }


def _change(now: _Counts, before: _Counts | None) -> _Counts:
    """What was counted since; of counters that began anew, all of it."""
    if before is None or now["answered"] < before["answered"] or now["failed"] < before["failed"]:
        return now
    numbers = {name: now[name] - before[name] for name in now if name != "latencies"}
    return {**numbers, "latencies": [new - old for new, old in zip(now["latencies"], before["latencies"], strict=True)]}


def _quantiles(counts: list[int]) -> list[float | None]:
    """Seconds below which each of the shares was answered, straight between the bounds of a bucket; None where none was."""
    total = sum(counts)
    if not total:
        return [None] * len(_SHARES)
    found: list[float | None] = []
    for share in _SHARES:
        rank, below = share * total, 0
        for index, bound in enumerate(LATENCY_BOUNDS):
            if counts[index] and below + counts[index] >= rank:
                lower = LATENCY_BOUNDS[index - 1] if index else 0.0
                found.append(round(lower + (bound - lower) * (rank - below) / counts[index], 6))
                break
            below += counts[index]
        else:
            found.append(LATENCY_BOUNDS[-1])
    return found
