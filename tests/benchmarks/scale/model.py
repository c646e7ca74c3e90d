"""What the simulation is told about a server: how long its stages take, how they disturb each other, how many of each."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["SHARES", "Distribution", "ServerSpec", "Speeds", "constant"]

# Where a distribution is kept: close together at its ends, which decide about p99.
SHARES = (0.0, 0.01, 0.05, *(step / 10 for step in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 1.0)


@dataclass(frozen=True)
class Distribution:
    """Seconds that something takes, by its quantiles at `SHARES`; between two of them every value is as likely."""

    quantiles: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(first <= second for first, second in zip(self.quantiles, self.quantiles[1:], strict=False))
        if len(self.quantiles) != len(SHARES) or not rising or not 0 <= self.quantiles[0] <= self.quantiles[-1] < math.inf:
            raise ValueError(f"a distribution needs {len(SHARES)} rising quantiles >= 0, got {list(self.quantiles)}")

    @classmethod
    def of(cls, samples: Sequence[float]) -> Distribution:
        """Of measured seconds; raises ValueError for none."""
        if not samples:
            raise ValueError("a distribution needs samples")
        ordered = sorted(samples)
        places = (share * (len(ordered) - 1) for share in SHARES)
        return cls(tuple(_between(ordered, place) for place in places))

    @property
    def mean(self) -> float:
        parts = zip(SHARES, SHARES[1:], self.quantiles, self.quantiles[1:], strict=False)
        return sum((end - begin) * (low + high) / 2 for begin, end, low, high in parts)

    @property
    def median(self) -> float:
        return self.quantiles[SHARES.index(0.5)]

    @property
    def highest_usual(self) -> float:
        """What 99 % take at most."""
        return self.quantiles[SHARES.index(0.99)]

    def draw(self, source: random.Random) -> float:
        """One value."""
        share = source.random()
        place = bisect.bisect_right(SHARES, share) - 1
        low, high = self.quantiles[place : place + 2]
        return low + (high - low) * (share - SHARES[place]) / (SHARES[place + 1] - SHARES[place])

    def to_json(self) -> dict[str, Any]:
        """Milliseconds, with the mean, for people."""
        return {"mean_ms": round(1e3 * self.mean, 4), "quantiles_ms": [round(1e3 * value, 4) for value in self.quantiles]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Distribution:
        return cls(tuple(value / 1e3 for value in data["quantiles_ms"]))


def constant(seconds: float) -> Distribution:
    """What always takes as long."""
    return Distribution((seconds,) * len(SHARES))


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """How fast threads run beside each other on `cores`; 1 is alone.

    `together[k - 1]` is the speed of each of k threads. `beside[k - 1]` is the speed of each of k threads beside a batch, which
    has a thread on every core, and that of the batch. For more threads than were measured, all get their shares of the cores,
    as an operating system divides them among threads of one priority.
    """

    cores: int
    together: tuple[float, ...]
    beside: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        values = [*self.together, *(speed for pair in self.beside for speed in pair)]
        if self.cores < 1 or not self.together or not self.beside or not all(0 < value < math.inf for value in values):
            raise ValueError(f"speeds need cores >= 1 and positive factors for one thread and more, got {self}")

    @classmethod
    def ideal(cls, cores: int) -> Speeds:
        """Of cores that do not disturb each other."""
        share = cores / (cores + 1)
        return cls(cores=cores, together=(1.0,), beside=((share, share),))

    def at(self, threads: int, batches: int) -> tuple[float, float]:
        """The speed of each of so many threads, and of each of so many batches, when all run at once."""
        if not batches:
            if threads <= len(self.together):
                return (self.together[max(threads, 1) - 1], 0.0)
            full = max(len(self.together), self.cores)
            return (self.together[-1] * min(1.0, full / threads), 0.0)
        if not threads:
            return (0.0, 1.0 / batches)
        known = min(threads, len(self.beside))
        thread, batch = self.beside[known - 1]
        shared = (self.cores + known) / (self.cores * batches + threads)
        # A thread is never faster than alone.
        return (min(1.0, thread * shared), batch * shared)


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """One server: `front_ends` event loops, `decoders` threads and one engine with `instances` sessions.

    `handling` is the processor time that a request takes apart from decoding and the model, `handing_over` what it waits beyond
    that between threads and sockets. `batch` says how long a batch of each bucket takes alone, `profile` what warm-up found,
    which is what the policy goes by. The model runs on the `cores` that all else runs on, or with `gpu` on a device of its own.
    """

    speeds: Speeds
    batch: Mapping[int, Distribution]
    decode: Distribution
    handling: float
    handing_over: float = 0.0
    profile: Mapping[int, float] | None = None
    front_ends: int = 1
    decoders: int = 2
    instances: int = 1
    max_delay: float = 0.001
    max_queue: int = 256
    gpu: bool = False

    def __post_init__(self) -> None:
        if min(self.front_ends, self.decoders, self.instances, self.max_queue) < 1:
            raise ValueError("front_ends, decoders, instances and max_queue must be at least 1")
        if not (self.batch and min(self.handling, self.handing_over, self.max_delay) >= 0):
            raise ValueError("a server needs batches, and handling, handing_over and max_delay that are not negative")
        if self.profile is not None and set(self.profile) != set(self.batch):
            raise ValueError(f"the profile has buckets {sorted(self.profile)}, measured were {sorted(self.batch)}")

    @property
    def table(self) -> dict[int, float]:
        """Seconds per bucket as the policy believes them."""
        return dict(self.profile) if self.profile is not None else {size: one.mean for size, one in self.batch.items()}

    def without_spread(self) -> ServerSpec:
        """The same with every stage at its mean: what a simulation from averages would see."""
        means = {bucket: constant(one.mean) for bucket, one in self.batch.items()}
        return replace(self, batch=means, decode=constant(self.decode.mean))


def _between(ordered: Sequence[float], place: float) -> float:
    low = min(int(place), len(ordered) - 1)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
