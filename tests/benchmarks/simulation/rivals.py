"""Batching policies of other servers, as their literature describes them, to compare with. None of them serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.policy import Decision, Dispatch, Reject, Rejection, Wait, Waiting

__all__ = ["AdditiveIncrease", "EarlyDrop", "FixedWindow"]


class _TakesAll:
    """Admission as these servers have it: a bound on the queue and nothing else."""

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
        return Rejection(True, 0.0) if waiting >= limit else None


@dataclass(frozen=True, kw_only=True)
class FixedWindow(_TakesAll):
    """Triton's dynamic batcher: a batch of the largest preferred size that can be made goes at once; otherwise whatever waits
    goes, up to the largest size, when the first request has waited `delay` seconds.

    `largest` is the model's max_batch_size, by default the largest there is. A request that has waited for longer than
    `queue_timeout` seconds is rejected (the queue policy's default_timeout_microseconds with REJECT).

    Source: NVIDIA Triton Inference Server, User Guide, "Batchers", sections Preferred Batch Sizes, Delayed Batching and Queue
    Policy. Without `preferred` sizes, the largest one alone goes before its time.
    """

    delay: float
    preferred: tuple[int, ...] = ()
    largest: int | None = None
    queue_timeout: float = inf

    def decide(
        self, now: float, queue: Sequence[Waiting], table: LatencyTable, *, free: int, coming: int = 0, instances: int = 1
    ) -> Decision:
        if not queue or free < 1:
            return Wait()
        if now - queue[0].queued > self.queue_timeout:
            return Reject()
        largest = self.largest or table.largest
        fitting = max(1, _fitting(queue, largest))
        rows = sum(waiting.rows for waiting in queue[:fitting])
        if fitting < len(queue) or rows == largest:
            return Dispatch(fitting, table.bucket_for(rows))
        for size in sorted(self.preferred, reverse=True):
            if size <= rows:
                count = _fitting(queue, size)
                if count and sum(waiting.rows for waiting in queue[:count]) == size:
                    return Dispatch(count, table.bucket_for(size))
        until = min(waiting.queued for waiting in queue) + self.delay
        return Wait(until) if until > now else Dispatch(fitting, table.bucket_for(rows))


@dataclass(kw_only=True)
class AdditiveIncrease(_TakesAll):
    """Clipper's adaptive batching: the size limit grows by one after each full batch until a batch takes longer than
    `objective` seconds, and is then cut by 10 %. A free instance takes at once what waits, up to the limit.

    Source: Crankshaw et al., "Clipper: A Low-Latency Online Prediction Serving System", NSDI 2017, section 4.3.1. Tell `ran` of
    every batch.
    """

    objective: float
    limit: float = 1.0

    def decide(
        self, now: float, queue: Sequence[Waiting], table: LatencyTable, *, free: int, coming: int = 0, instances: int = 1
    ) -> Decision:
        if not queue or free < 1:
            return Wait()
        size = max(1, min(int(self.limit), table.largest))
        count = max(1, _fitting(queue, size))  # a request with more rows than the limit still has to be served
        return Dispatch(count, table.bucket_for(sum(waiting.rows for waiting in queue[:count])))

    def ran(self, rows: int, seconds: float) -> None:
        """Learn from one batch."""
        if seconds > self.objective:
            self.limit = max(1.0, 0.9 * self.limit)
        elif rows >= int(self.limit):
            self.limit += 1


@dataclass(frozen=True, kw_only=True)
class EarlyDrop(_TakesAll):
    """Nexus' batch-aware dispatch: a window of `size` requests slides over the queue and stops at the first request whose
    deadline the whole window can meet; those before it are dropped.

    Source: Shen et al., "Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis", SOSP 2019, section 4.3. The
    cluster scheduler that chooses `size` there is replaced by the caller. A queue shorter than the window is one window.
    """

    size: int

    def decide(
        self, now: float, queue: Sequence[Waiting], table: LatencyTable, *, free: int, coming: int = 0, instances: int = 1
    ) -> Decision:
        if not queue or free < 1:
            return Wait()
        count = max(1, _fitting(queue, self.size))
        bucket = table.bucket_for(sum(waiting.rows for waiting in queue[:count]))
        return Dispatch(count, bucket) if now + table.seconds(bucket) <= queue[0].deadline else Reject()


def _fitting(queue: Sequence[Waiting], rows: int) -> int:
    """How many requests from the head of the queue fit into so many rows."""
    for count, waiting in enumerate(queue):
        rows -= waiting.rows
        if rows < 0:
            return count
    return len(queue)
