"""Latencies as counts in buckets of equal relative width, in the manner of HdrHistogram: small, mergeable, a bounded error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

GROWTH = 1.01  # each bucket ends 1 % above the one before it, so percentiles are at most 1 % too high
_FLOOR_MS = 1e-3
_LOG_GROWTH = math.log(GROWTH)


class Histogram:
    """Counts of latencies. Percentiles are nearest-rank: the end of the bucket in which that share of the counts is reached."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._highest_ms = 0.0

    def __len__(self) -> int:
        return self._counts.total()

    def record(self, seconds: float) -> None:
        """Count one latency; anything below a microsecond counts as one."""
        milliseconds = seconds * 1e3
        self._counts[math.ceil(math.log(max(milliseconds, _FLOOR_MS) / _FLOOR_MS) / _LOG_GROWTH)] += 1
        self._highest_ms = max(self._highest_ms, milliseconds)

    def merge(self, other: Histogram) -> None:
        """Count what another one has counted."""
        self._counts.update(other._counts)
        self._highest_ms = max(self._highest_ms, other._highest_ms)

    def percentile_ms(self, share: float) -> float:
        """Milliseconds that this share of the latencies took at most; NaN of none. The highest of all is exact."""
        rank, seen = max(1, math.ceil(share * len(self))), 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return min(_FLOOR_MS * GROWTH**bucket, self._highest_ms)
        return math.nan

    def within(self, seconds: float) -> int:
        """How many latencies were at most so long; one that is less than a bucket longer may count."""
        return sum(count for bucket, count in self._counts.items() if _FLOOR_MS * GROWTH ** (bucket - 1) < seconds * 1e3)

    def summary_ms(self) -> dict[str, float]:
        """p50, p90, p99 and the maximum; empty of no latencies."""
        named = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        return {name: round(self.percentile_ms(share), 4) for name, share in named} if self._counts else {}

    def to_json(self) -> dict[str, Any]:
        """The ends of the buckets that have counts, in milliseconds, with the counts."""
        buckets = sorted(self._counts)
        return {
            "upper_ms": [float(f"{_FLOOR_MS * GROWTH**bucket:.7g}") for bucket in buckets],
            "counts": [self._counts[bucket] for bucket in buckets],
            "highest_ms": self._highest_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        made = cls()
        for upper, count in zip(data["upper_ms"], data["counts"], strict=True):
            made._counts[round(math.log(upper / _FLOOR_MS) / _LOG_GROWTH)] += count
        made._highest_ms = data["highest_ms"]
        return made
