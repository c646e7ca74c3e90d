"""When to run which requests together. Pure: no clock, no threads, no queue of its own, so it is tested in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .latency import LatencyTable

__all__ = ["BatchPolicy", "Decision", "Dispatch", "Reject", "Wait", "Waiting"]


class Waiting(Protocol):
    """What the policy sees of a request: its rows, its deadline on the caller's clock, and when it joined the queue."""

    @property
    def rows(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def queued(self) -> float: ...


@dataclass(frozen=True)
class Dispatch:
    """Run the first `count` requests now as one batch of size `bucket`."""

    count: int
    bucket: int


@dataclass(frozen=True)
class Wait:
    """Nothing to do before `until`, or before the queue changes (always, when None)."""

    until: float | None = None


@dataclass(frozen=True)
class Reject:
    """The first request cannot be answered by its deadline any more."""


Decision = Dispatch | Wait | Reject

# Under overload, a batch that answers fewer rows per second than this share of a full one's gives way to full ones.
_WORTH_SERVING = 0.8


@dataclass(frozen=True, kw_only=True)
class BatchPolicy:
    """Keep a free device busy, with the batch sizes that drain the queue soonest.

    A free device waits for company only when rows are known to be on their way (being decoded), when running them together
    saves device time by the profile, and never longer than that saving or `max_delay` seconds. So a lone request never waits.
    """

    max_delay: float = 0.01

    def decide(self, now: float, queue: Sequence[Waiting], table: LatencyTable, *, free: int, coming: int = 0) -> Decision:
        """What a free instance does next. `queue` is in the order of service; `free` counts idle instances, this one included;
        `coming` counts rows that were admitted but are not in the queue yet."""
        if not queue or free < 1:
            return Wait()
        rows = sum(waiting.rows for waiting in queue)
        # Idle instances share what waits; the one that asks takes its part.
        target = max(table.first_batch(-(-rows // free)), queue[0].rows)
        count, taken, feasible, tightest = 0, 0, 0, float("inf")
        for waiting in queue:
            if taken + waiting.rows > target:
                break
            count += 1
            taken += waiting.rows
            tightest = min(tightest, waiting.deadline)
            if now + table.seconds(table.bucket_for(taken)) <= tightest:
                feasible = count
        if not feasible or (feasible < count and self._hopeless(now, queue, table, rows, feasible, target)):
            return Reject()
        if feasible == count and taken < table.largest and coming and free == 1:
            until = self._company_until(now, queue[:count], table, coming)
            if until > now:
                return Wait(until)
        taken = sum(waiting.rows for waiting in queue[:feasible])
        return Dispatch(feasible, table.bucket_for(taken))

    def _hopeless(
        self, now: float, queue: Sequence[Waiting], table: LatencyTable, rows: int, feasible: int, target: int
    ) -> bool:
        """Whether meeting the first deadline with a small batch would cost more answers than it gives.

        So it is when there is more to do than can be done in time, and the small batch is much the worse use of the device;
        serving ever smaller batches to the most urgent request is how earliest-deadline-first collapses under overload.
        """
        served = sum(waiting.rows for waiting in queue[:feasible])
        small = table.seconds(table.bucket_for(served))
        all_done = now + small + table.drain_seconds(rows - served)
        overloaded = all_done > max(waiting.deadline for waiting in queue)
        return overloaded and served / small < _WORTH_SERVING * target / table.seconds(target)

    def _company_until(self, now: float, batch: Sequence[Waiting], table: LatencyTable, coming: int) -> float:
        """Until when it pays to hold this batch back for the rows that are coming."""
        taken = sum(waiting.rows for waiting in batch)
        together = min(taken + coming, table.largest)
        company = together - taken
        alone = table.seconds(table.bucket_for(taken)) + table.drain_seconds(company)
        saved = alone - table.seconds(table.bucket_for(together))
        since = min(waiting.queued for waiting in batch)
        latest_start = min(waiting.deadline for waiting in batch) - 2 * table.seconds(table.bucket_for(together))
        return min(since + min(self.max_delay, saved), latest_start) if saved > 0 else now

    def finish_estimate(self, now: float, ahead: int, rows: int, busy_until: Sequence[float], table: LatencyTable) -> float:
        """When a request of `rows` would be answered that arrives now behind `ahead` rows; one `busy_until` per instance."""
        start = max(now, min(busy_until))
        share = -(-ahead // len(busy_until))
        return start + max(table.drain_seconds(share + rows), table.seconds(table.bucket_for(rows)))
