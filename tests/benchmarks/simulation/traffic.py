"""When requests arrive and what they ask for: Poisson, bursts, a day's swing, recorded traces. All repeatable by seed."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Arrival", "bursts", "diurnal", "mixed", "poisson", "read_trace", "rescaled"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: the second it arrives, its rows, the seconds it allows, and its priority (0: none given)."""

    at: float
    rows: int = 1
    timeout: float = math.inf
    priority: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at) and self.at >= 0 and self.rows >= 1 and self.timeout > 0 and self.priority >= 0):
            raise ValueError(f"an arrival needs a second >= 0, rows >= 1, a timeout > 0 and a priority >= 0, got {self}")


def poisson(rate: float, seconds: float, *, seed: int = 0) -> list[float]:
    """Independent users: exponential gaps with mean 1 / rate."""
    _check(rate, seconds)
    source, times, at = random.Random(seed), [], 0.0
    while (at := at + source.expovariate(rate)) < seconds:
        times.append(at)
    return times


def bursts(
    rate: float, seconds: float, *, peak: float = 3.0, share: float = 0.2, burst_seconds: float = 0.1, seed: int = 0
) -> list[float]:
    """A Markov-modulated Poisson process of two states, with the mean rate `rate`.

    Bursts come with `peak` times the mean rate, last `burst_seconds` on average and take `share` of the time.
    """
    _check(rate, seconds)
    if not (0 < share < 1 and peak >= 1 and peak * share <= 1 and burst_seconds > 0):
        raise ValueError(f"bursts need 0 < share < 1, peak >= 1 and peak * share <= 1, got share {share} and peak {peak}")
    quiet = (1 - peak * share) / (1 - share)
    lengths = {True: burst_seconds, False: burst_seconds * (1 - share) / share}
    source, times = random.Random(seed), []
    at, bursting = 0.0, source.random() < share
    while at < seconds:
        end = min(seconds, at + source.expovariate(1 / lengths[bursting]))
        current = rate * (peak if bursting else quiet)
        while current > 0 and (at := at + source.expovariate(current)) < end:
            times.append(at)
        at, bursting = end, not bursting  # exponential gaps have no memory, so the one that was cut short needs no care
    return times


def diurnal(rate: float, seconds: float, *, period: float = 5.0, swing: float = 0.6, seed: int = 0) -> list[float]:
    """A day in `period` seconds: at second t the rate is rate * (1 + swing * sin(2 pi t / period)).

    By thinning: Lewis and Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", 1979.
    """
    _check(rate, seconds)
    if not (0 <= swing <= 1 and period > 0):
        raise ValueError(f"diurnal traffic needs 0 <= swing <= 1 and a period > 0, got {swing} and {period}")
    source = random.Random(seed)
    highest = 1 + swing
    return [
        at
        for at in poisson(rate * highest, seconds, seed=seed + 1)
        if source.random() * highest < 1 + swing * math.sin(2 * math.pi * at / period)
    ]


def mixed(
    times: Sequence[float],
    *,
    rows: Mapping[int, float] | None = None,
    timeouts: Mapping[float, float] | None = None,
    priorities: Mapping[int, float] | None = None,
    seed: int = 0,
) -> list[Arrival]:
    """Requests at those times whose rows, timeouts and priorities are drawn with the weights given, independently."""
    source = random.Random(seed)

    def draw(weights: Mapping[Any, float]) -> list[Any]:
        return source.choices(list(weights), list(weights.values()), k=len(times))

    drawn = zip(times, draw(rows or {1: 1.0}), draw(timeouts or {math.inf: 1.0}), draw(priorities or {0: 1.0}), strict=True)
    return [Arrival(at, count, timeout, priority) for at, count, timeout, priority in drawn]


def read_trace(path: Path) -> list[Arrival]:
    """A recorded trace: a CSV file with the column `seconds` and, where known, `rows`, `timeout_ms` and `priority`; or a JSON
    list of seconds, or of objects with those keys. Times may begin anywhere (time stamps): the first becomes 0.

    Raises ValueError naming the entry that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the trace {path.name}: {error}") from error
    entries: list[Any]
    if path.suffix.lower() == ".json":
        try:
            entries = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the trace {path.name} is not JSON: {error}") from error
        if not isinstance(entries, list):
            raise ValueError(f"the trace {path.name} must be a list of seconds or of objects with 'seconds'")
    else:
        entries = list(csv.DictReader(text.splitlines()))
    arrivals: list[tuple[float, int, float, int]] = []
    for number, entry in enumerate(entries, 1):
        fields = entry if isinstance(entry, Mapping) else {"seconds": entry}
        try:
            timeout = fields.get("timeout_ms")
            arrivals.append(
                (
                    float(fields["seconds"]),
                    int(fields.get("rows") or 1),
                    float(timeout) / 1e3 if timeout else math.inf,
                    int(fields.get("priority") or 0),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"entry {number} of the trace {path.name} needs a number in 'seconds', got {entry!r}") from error
    if not arrivals:
        raise ValueError(f"the trace {path.name} has no entries")
    arrivals.sort()
    first = arrivals[0][0]
    return [Arrival(at - first, rows, timeout, priority) for at, rows, timeout, priority in arrivals]


def rescaled(arrivals: Sequence[Arrival], rate: float) -> list[Arrival]:
    """The same requests in the same rhythm, with time stretched so that `rate` of them come per second on average."""
    if len(arrivals) < 2 or arrivals[-1].at <= arrivals[0].at:
        raise ValueError("a trace needs two requests at different times before its rate can be changed")
    factor = (len(arrivals) - 1) / (arrivals[-1].at - arrivals[0].at) / rate
    return [Arrival(one.at * factor, one.rows, one.timeout, one.priority) for one in arrivals]


def _check(rate: float, seconds: float) -> None:
    if not (0 < rate < math.inf and 0 < seconds < math.inf):
        raise ValueError(f"traffic needs a positive rate and length, got {rate} per second for {seconds} s")
