"""When to run which requests together. Pure: no clock, no threads, no queue of its own, so it is tested in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from .latency_table import LatencyTable

# Where a request ranks that names no priority; 1 is served first.
DEFAULT_PRIORITY = 100


class Waiting(Protocol):
    """What the policy sees of a request: rows, priority, and on the caller's clock its deadline and when it was queued."""

    @property
    def rows(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def queued(self) -> float: ...
    @property
    def priority(self) -> int: ...


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
    """Give up the request at `index`: it cannot be answered in time, or only by answering fewer others."""

    index: int = 0


Decision = Dispatch | Wait | Reject


@dataclass(frozen=True)
class Rejection:
    """A request that is not taken, because the queue is `full` or, if it is not, because the answer would be late. `seconds` is
    how long the answer would take."""

    full: bool
    seconds: float


Order = tuple[int, float, int]


def service_order(priority: int, deadline: float, serial: int) -> Order:
    """The key that queues are sorted by: priority (0: none given), then deadline, then arrival."""
    return (priority or DEFAULT_PRIORITY, deadline, serial)


@dataclass(frozen=True, kw_only=True)
class BatchPolicy:
    """Keep a free device busy, with the batch sizes that drain the queue soonest; docs/batching.md says how well that does.

    A free device waits for company only when rows are known to be on their way (being decoded), when running them together
    saves device time by the profile, and never longer than that saving or `max_delay` seconds. So a lone request never waits.

    Where deadlines are only a few batches long, batches are kept so short that requests which come while one runs can still be
    answered after it, and a request that would make its batch too small is given up when that answers more of the others.
    """

    max_delay: float = 0.01

    def decide(
        self,
        now: float,
        queue: Sequence[Waiting],
        table: LatencyTable,
        *,
        free: int,
        coming: int = 0,
        instances: int = 1,
    ) -> Decision:
        """What a free instance does next. `queue` is in the order of service; `free` counts idle instances out of `instances`,
        this one included; `coming` counts rows that were admitted but are not in the queue yet."""
        if not queue or free < 1:
            return Wait()
        rows = sum(waiting.rows for waiting in queue)
        # Idle instances share what waits; the one that asks takes its part.
        part = -(-rows // free)
        target = max(self._batch_size(now, part, queue, table, instances), queue[0].rows)
        count, taken, feasible, tightest = 0, 0, 0, 0
        earliest, bucket, end = inf, 0, 0.0
        for waiting in queue:
            if taken + waiting.rows > target:
                break
            taken += waiting.rows
            if taken > bucket:
                bucket = table.bucket_for(taken)
                end = now + table.seconds(bucket)
            if waiting.deadline < earliest:
                tightest, earliest = count, waiting.deadline
            count += 1
            if end <= earliest:
                feasible = count
        if not feasible:
            return Reject()
        if feasible < count and self._better_without(now, queue, table, feasible, count, target):
            return Reject(tightest)
        if feasible == count and taken < table.largest and coming and free == 1:
            until = self._company_until(now, queue[:count], table, coming, since=min(waiting.queued for waiting in queue))
            if until > now:
                return Wait(until)
        taken = sum(waiting.rows for waiting in queue[:feasible])
        return Dispatch(feasible, table.bucket_for(taken))

    def _batch_size(self, now: float, rows: int, queue: Sequence[Waiting], table: LatencyTable, instances: int) -> int:
        """The size to begin with: what drains the queue soonest, or less if so long a batch would make later requests late.
        Those that wait already must not be the ones who pay for it."""
        size = table.first_batch(rows)
        allowed = min(waiting.deadline - waiting.queued for waiting in queue)
        if table.seconds(size) * (1 + 1 / instances) <= allowed:
            return size
        shorter = table.steady_batch(rows, allowed, instances)
        return size if _missed(now, queue, table, shorter) > _missed(now, queue, table, size) else shorter

    def _better_without(
        self, now: float, queue: Sequence[Waiting], table: LatencyTable, feasible: int, count: int, target: int
    ) -> bool:
        """Whether to give up the tightest of the first `count` requests rather than run only the first `feasible` for its sake.

        Serving ever smaller batches to the most urgent request is how earliest-deadline-first collapses under overload. So both
        ways are thought through to the end of the queue, and the device time that the small batch wastes is counted in the
        requests that arrive in it, at the rate at which the queue grew. Only requests that are as important count.
        """
        rank = min(queue[:count], key=lambda waiting: waiting.deadline).priority
        equals = [waiting for waiting in queue if waiting.priority <= rank]
        rest = [waiting for waiting in queue[feasible:] if waiting.priority <= rank]
        rows = sum(waiting.rows for waiting in equals)
        served = sum(waiting.rows for waiting in queue[:feasible])
        small = table.seconds(table.bucket_for(served))
        size = min(target, table.efficient)
        without, missed = _missed(now, equals, table, size), _missed(now + small, rest, table, size)
        efficient = _seconds_per_row(table, min(target, rows))
        grown = now - min(waiting.queued for waiting in equals)
        return (missed - without) * grown + (small - served * efficient) * rows > 0

    def _company_until(self, now: float, batch: Sequence[Waiting], table: LatencyTable, coming: int, *, since: float) -> float:
        """Until when it pays to hold this batch back for the rows that are coming, `since` the first of all was queued."""
        taken = sum(waiting.rows for waiting in batch)
        together = min(taken + coming, table.largest)
        company = together - taken
        alone = table.seconds(table.bucket_for(taken)) + table.drain_seconds(company)
        saved = alone - table.seconds(table.bucket_for(together))
        latest_start = min(waiting.deadline for waiting in batch) - 2 * table.seconds(table.bucket_for(together))
        return min(since + min(self.max_delay, saved), latest_start) if saved > 0 else now

    def admit(
        self,
        now: float,
        *,
        rows: int,
        deadline: float,
        ahead: Iterable[Waiting],
        ahead_rows: int,
        waiting: int,
        limit: int,
        busy_until: Sequence[float],
        table: LatencyTable,
    ) -> Rejection | None:
        """Whether to take a request that arrives now; None takes it. `ahead` are the admitted requests that are served before
        it, with so many rows; they are only looked at one by one where it would be late behind all of them. `waiting` counts
        all that do not run yet, of which there may be `limit`; `busy_until` has one entry per instance."""
        allowed = deadline - now
        if waiting < limit and (max(now, *busy_until) - now + table.at_most(ahead_rows + rows)) * table.caution <= allowed:
            return None  # as most requests are that allow seconds, without an estimate
        finish = self.finish_estimate(now, ahead_rows, rows, busy_until, table, allowed=allowed)
        if waiting >= limit:
            return Rejection(True, finish - now)
        if (finish - now) * table.caution <= allowed:
            return None
        # Those that will be given up, since they cannot join a full batch, take no time.
        size = self._steady_size(rows, table, allowed, len(busy_until))
        first = max(now, min(busy_until)) + table.seconds(size)
        lasting = sum(other.rows for other in ahead if other.deadline >= first)
        finish = self.finish_estimate(now, lasting, rows, busy_until, table, allowed=allowed)
        needed = (finish - now) * table.caution
        return Rejection(False, needed) if needed > allowed else None

    def _steady_size(self, rows: int, table: LatencyTable, allowed: float, instances: int) -> int:
        return max(min(table.efficient, table.steady_batch(table.largest, allowed, instances)), table.bucket_for(rows))

    def finish_estimate(
        self, now: float, ahead: int, rows: int, busy_until: Sequence[float], table: LatencyTable, *, allowed: float = inf
    ) -> float:
        """When a request of `rows` that allows so many seconds would be answered if it arrives now behind `ahead` rows.
        `busy_until` has one entry per instance."""
        start = sorted(max(now, until) for until in busy_until)
        size = self._steady_size(rows, table, allowed, len(start))
        share = -(-ahead // len(start)) + rows
        # Requests that come later join the last batch: it will be about as large as batches were of late.
        usual = min(size, round(table.recent))
        idle = start[0] == now
        if share <= (table.largest if idle else size):
            fill = share if idle else max(share, usual)
            return start[0] + max(table.drain_seconds(fill), table.seconds(table.bucket_for(rows)))
        full, rest = divmod(ahead + rows, size)
        rounds, last = divmod(full if rest else full - 1, len(start))
        own = max(table.drain_seconds(max(rest, usual)), table.seconds(table.bucket_for(rows))) if rest else table.seconds(size)
        return start[last] + rounds * table.seconds(size) + own


@dataclass(frozen=True, kw_only=True)
class PreferredSizes(BatchPolicy):
    """Batches of the sizes that a config prefers, formed as Triton's docs/user_guide/batcher.md says: the largest of these that
    the requests in front make up exactly; otherwise, once the oldest has waited `max_delay` seconds or no larger one can
    be preferred, all that fit."""

    preferred: tuple[int, ...]

    def decide(
        self,
        now: float,
        queue: Sequence[Waiting],
        table: LatencyTable,
        *,
        free: int,
        coming: int = 0,
        instances: int = 1,
    ) -> Decision:
        if not queue or free < 1:
            return Wait()
        count, rows, best = 0, 0, (0, 0)
        for waiting in queue:
            if rows + waiting.rows > table.largest:
                break
            count, rows = count + 1, rows + waiting.rows
            if rows in self.preferred:
                best = (count, rows)
        if best[0]:
            return Dispatch(best[0], table.bucket_for(best[1]))
        until = min(waiting.queued for waiting in queue) + self.max_delay
        if count < len(queue) or rows >= self.preferred[-1] or now >= until:
            return Dispatch(count, table.bucket_for(rows))
        return Wait(until)


def _missed(begin: float, waiting: Iterable[Waiting], table: LatencyTable, size: int) -> int:
    """How many of these rows will be late if one instance begins then to run them in batches of `size`, the tightest first. A
    batch does not wait for those that would be late in it."""
    ordered = sorted(waiting, key=lambda one: one.deadline)
    left = sum(one.rows for one in ordered)
    missed = room = 0
    for one in ordered:
        if one.rows > room:
            full = max(min(left, size), one.rows)
            finish = begin + table.seconds(table.bucket_for(full))
            if one.deadline < finish:
                missed += one.rows
                left -= one.rows
                continue
            begin, room = finish, full
        room -= one.rows
        left -= one.rows
    return missed


def _seconds_per_row(table: LatencyTable, rows: int) -> float:
    return table.seconds(table.bucket_for(rows)) / rows
