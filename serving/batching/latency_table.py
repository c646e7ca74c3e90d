"""How long a batch of each profiled size takes, and what follows: which size to run next, and how long a queue lasts."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

# A larger first batch is kept when the queue is then done at most this much later: a batch has costs the profile does not see.
_TOLERANCE = 1.02
# The observed speed follows the profile's by this much per batch, and one outlier moves it by at most a factor of two.
_SMOOTHING, _OUTLIER = 0.1, 2.0
# The smallest bucket that serves this share of the most rows per second is as good as the best.
_EFFICIENT = 0.95
# Of the requests that are admitted, this share may be late; each late one adds the step to the caution, up to the bound. In the
# simulator a larger step rejects too much after a burst, and a smaller share rejects what could have been answered.
_LATE, _STEP, _MOST_CAUTION = 0.02, 0.003, 2.0


class LatencyTable:
    """Seconds per batch for each bucket, as profiled at warm-up.

    Buckets are the only batch sizes that run; fewer rows are padded up. The profile is taken on an idle machine; `observe`
    learns one common factor for how much slower batches are under load, so that deadlines are judged by today's speed while
    the choice between buckets stays with the profile. `recent` is how large batches were of late, on average. `caution` is the
    factor by which estimated waits are to be stretched so that few of the admitted requests are late.

    Batches of a size that nobody forms show nothing. So those that something quicker may run are believed to gain that much, by
    `hope`, until `quicken` says what it came to.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        if not seconds or any(bucket < 1 or not 0 < value < math.inf for bucket, value in seconds.items()):
            raise ValueError(f"a latency table needs positive buckets with positive finite seconds, got {dict(seconds)}")
        self.buckets = tuple(sorted(seconds))
        self.largest = self.buckets[-1]
        self.factor = 1.0
        self.recent = 0.0
        self.caution = 1.0
        self._measured = {bucket: float(seconds[bucket]) for bucket in self.buckets}
        self._hopes: dict[int, float] = {}
        self._take()

    def _take(self) -> None:
        self._profile, smaller = dict(self._measured), self.buckets[0]
        for bucket in self.buckets[1:]:
            if bucket in self._hopes:
                hoped = self._profile[smaller] / smaller * bucket / self._hopes[bucket]
                self._profile[bucket] = min(self._measured[bucket], hoped)
            smaller = bucket
        self._longest = max(self._profile.values())
        self._best = max(self.buckets, key=lambda bucket: (bucket / self._profile[bucket], bucket))
        self._total, self._first = self._schedule()
        most = max(bucket / self._profile[bucket] for bucket in self.buckets)
        self.efficient = next(bucket for bucket in self.buckets if bucket / self._profile[bucket] >= _EFFICIENT * most)

    def _schedule(self) -> tuple[list[float], list[int]]:
        """For every number of rows up to the largest bucket: the least time to run them all, and the bucket to begin with."""
        total, first = [0.0], [0]
        for rows in range(1, self.largest + 1):
            costs = {bucket: self._profile[bucket] + total[max(0, rows - bucket)] for bucket in self.buckets}
            least = min(costs.values())
            # Buckets beyond the next one up only add padding.
            useful = [
                bucket for bucket in self.buckets if bucket <= self.bucket_for(rows) and costs[bucket] <= least * _TOLERANCE
            ]
            total.append(least)
            first.append(max(useful, default=min(costs, key=costs.__getitem__)))
        return total, first

    def seconds(self, bucket: int) -> float:
        """How long a batch of that bucket takes now."""
        return self._profile[bucket] * self.factor

    def bucket_for(self, rows: int) -> int:
        """The smallest bucket that holds so many rows; rows may not exceed the largest bucket."""
        return self.buckets[bisect_left(self.buckets, rows)]

    def first_batch(self, rows: int) -> int:
        """The bucket with which to begin when so many rows wait, so that all are done soonest."""
        return self._first[rows] if rows <= self.largest else self._best

    def steady_batch(self, rows: int, allowed: float, instances: int = 1) -> int:
        """The bucket that answers most of `rows` per second in time when requests that allow so many seconds never stop coming.

        Those that arrive while a batch runs wait for its end, at any moment of its `seconds` alike, and then take as long
        again: with long batches, some would be late. Instances end their batches in turn.
        """
        if rows >= self.largest and self._longest * self.factor * (1 + 1 / instances) <= allowed:
            return self._best  # of no bucket would any be late

        def in_time(bucket: int) -> float:
            seconds = self.seconds(bucket)
            return min(rows, bucket) / seconds * min(1.0, max(0.0, instances * (allowed - seconds) / seconds))

        return max(self.buckets, key=lambda bucket: (in_time(bucket), bucket))

    def drain_seconds(self, rows: int) -> float:
        """How long one instance needs for so many rows."""
        if rows <= self.largest:
            return self._total[rows] * self.factor
        beyond = (rows - self.largest) * self._profile[self._best] / self._best
        return (self._total[self.largest] + beyond) * self.factor

    def at_most(self, rows: int) -> float:
        """Longer than one instance needs for so many rows, and for a largest batch before and behind them, in any batches."""
        return (rows + 2 * self.largest) * self._longest * self.factor

    def observe(self, bucket: int, seconds: float) -> None:
        """Learn from one batch that ran."""
        self.recent += _SMOOTHING * (bucket - self.recent)
        seen = seconds / self._measured[bucket]
        seen = min(max(seen, self.factor / _OUTLIER), self.factor * _OUTLIER)
        self.factor += _SMOOTHING * (seen - self.factor)

    def quicken(self, bucket: int, times: float) -> None:
        """Batches of that bucket take 1/`times` of what they took, and nothing more is hoped of them."""
        if self._hopes.pop(bucket, None) is not None or times != 1.0:
            self._measured[bucket] /= times
            self._take()

    def hope(self, bucket: int, times: float) -> None:
        """Batches of that bucket may soon take, for each row, 1/`times` of what those of the next smaller one take."""
        self._hopes[bucket] = times
        self._take()

    def settle(self, *, in_time: bool) -> None:
        """Learn whether an admitted request was answered before its deadline. In balance when the wanted share is late:
        quantile tracking by stochastic approximation (Robbins and Monro, 1951)."""
        if in_time and self.caution == 1.0:
            return
        step = -_STEP * _LATE / (1 - _LATE) if in_time else _STEP
        self.caution = min(_MOST_CAUTION, max(1.0, self.caution + step))

    def to_json(self) -> dict[str, float]:
        """Milliseconds per bucket, for people."""
        return {str(bucket): round(self._profile[bucket] * 1000, 3) for bucket in self.buckets}
