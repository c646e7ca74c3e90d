"""How far a job is, when it will be done, and which of its stages the others wait for."""

from __future__ import annotations

import time
from collections.abc import Mapping

from .plan import Plan, Shard
from .stages import Busy


class Progress:
    """Counts images as they come out of the pipeline, and shards as their files are there. Written by one thread, read by any.

    `done` has the images of the shards that earlier runs finished, `errors` how many of those are broken. Counts with
    "committed" are those of finished shards; the others include the shard that is being written.
    """

    def __init__(self, plan: Plan, *, done: Mapping[int, int], errors: int) -> None:
        self._plan = plan
        self._sizes = all(shard.size >= 0 for shard in plan.shards)
        self.clock: Busy | None = None
        self.images = self.committed = self.before = sum(done.values())
        self.errors = self.committed_errors = errors
        self.shards_done = len(done)
        self.total = plan.images
        self._begin = time.monotonic()
        self._bytes_before = self._bytes = sum(shard.size for shard in plan.shards if shard.number in done)
        self._bytes_total = sum(shard.size for shard in plan.shards)

    def start(self, clock: Busy) -> None:
        """From here on time counts."""
        self.clock, self._begin = clock, time.monotonic()

    def image(self, broken: bool) -> None:
        """An image came out, classified or not."""
        self.images += 1
        self.errors += broken

    def commit(self, shard: Shard, images: int, errors: int) -> None:
        """A shard's file is there."""
        self.committed += images
        self.committed_errors += errors
        self.shards_done += 1
        self._bytes += shard.size

    def finished(self, shard: Shard, images: int, errors: int) -> None:
        """A whole shard was done elsewhere."""
        self.images += images
        self.errors += errors
        self.commit(shard, images, errors)

    @property
    def rate(self) -> float:
        """Images per second of this run."""
        return (self.images - self.before) / max(time.monotonic() - self._begin, 1e-9)

    @property
    def share(self) -> float | None:
        """How much of the job is done, from 0 to 1: by images, or by bytes where those are not counted; None at first."""
        if self.total is not None:
            return self.images / self.total if self.total else 1.0
        if not self._sizes or not self._bytes_total:
            return None
        # Within a shard by what its images will have been on average so far.
        running = self.images - self.committed
        each = self._bytes / self.committed if self.committed else 0.0
        return min(1.0, (self._bytes + running * each) / self._bytes_total)

    @property
    def seconds_left(self) -> float | None:
        """None as long as nothing tells."""
        share = self.share
        elapsed = time.monotonic() - self._begin
        if share is None or self.images == self.before:
            return None
        if self.total is not None:
            return (self.total - self.images) / self.rate
        gained = share - self._bytes_before / self._bytes_total
        return elapsed * (1 - share) / gained if gained > 0 else None

    def __str__(self) -> str:
        of = f" of {self.total:,}" if self.total is not None else ""
        parts = [f"{self.images:,}{of} images", f"{self.rate:,.0f}/s" if self.rate >= 10 else f"{self.rate:.1f}/s"]
        if (left := self.seconds_left) is not None:
            parts.append(f"{_duration(left)} left")
        if self.clock is not None and (stage := self.clock.bottleneck()):
            parts.append(f"bottleneck: {stage} ({self.clock.shares()[stage].busy:.0%} busy)")
        if self.errors:
            parts.append(f"{self.errors:,} errors")
        return " · ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
