"""How one batch runs: its requests' rows together through a session, and each request's own answer out of what that gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from ...errors import ExecutionError
from .collate import Collator, joined, split
from .latency_table import LatencyTable
from .staging import Staging
from .statistics import BatchTimes, ModelStatistics
from .ticket import Best, Joining, Rows, Runner, Ticket

Watch = Callable[[Sequence[np.ndarray], Rows, int], None]
"""What is called with a batch's inputs, outputs and number of real rows."""


class BatchExecutor:
    """Runs batches of one model, in any number of threads, each with a collator of its own. What it learns of their times goes
    into `table` and `statistics`. `watch`, where it is set, is called once a batch's requests are answered."""

    def __init__(
        self,
        table: LatencyTable,
        statistics: ModelStatistics,
        staging: Staging,
        *,
        best: Best | None,
        joining: Joining,
        clock: Callable[[], float],
    ) -> None:
        self.watch: Watch | None = None
        self._table = table
        self._statistics = statistics
        self._staging = staging
        self._best = best
        self._joining = joining
        self._clock = clock

    @property
    def gives_best(self) -> bool:
        """Whether requests may ask for the best classes alone."""
        return self._best is not None

    def run(self, session: Runner, collator: Collator, batch: list[Ticket], bucket: int) -> None:
        """Answer a batch's tickets, which end as "done". Raises what the session raises, and ExecutionError where its outputs
        have not the batch's rows; then none is answered."""
        began, begin = self._clock(), time.perf_counter_ns()
        rows = sum(ticket.rows for ticket in batch)
        if self._joining is Joining.PADDED:
            size, staged = bucket, self._staging.batch(batch, bucket)
            inputs = collator.collate(batch, bucket) if staged is None else staged
        else:
            size, inputs = rows, joined([ticket.inputs for ticket in batch])
        collated = time.perf_counter_ns()
        best = self._best_alone(session, batch)
        outputs = session.run(inputs) if best is None else best(inputs, max(ticket.best for ticket in batch))
        ran = time.perf_counter_ns()
        if any(output.shape[:1] != (size,) for output in outputs):
            raise ExecutionError(f"outputs of a batch of {size} have shapes {[output.shape for output in outputs]}")
        answers = self._answers(outputs, collator, batch, rows, found=best is not None)
        done = time.perf_counter_ns()
        now = self._clock()
        times = BatchTimes(rows, collated - begin, ran - collated, done - ran)
        compute_ns = done - begin
        self._statistics.batch_done(
            times,
            [(int((now - t.arrived) * 1e9), max(0, int((now - t.queued) * 1e9) - compute_ns), t.deadline - now) for t in batch],
        )
        for ticket, answer in zip(batch, answers, strict=True):
            self._table.settle(in_time=now <= ticket.deadline)
            ticket.state = "done"
            ticket.began, ticket.ended, ticket.batch = began, now, rows
            ticket.future.set_result(answer)
        if self.watch is not None and best is None:
            self.watch(inputs, outputs, rows)
        # Handing answers over counts as well: until it is done no other batch begins.
        self._table.observe(bucket, (time.perf_counter_ns() - begin) / 1e9)

    def _best_alone(self, session: Runner, batch: list[Ticket]) -> Callable[[Rows, int], Rows] | None:
        """What computes the best classes without the outputs, of a session that can, for requests that all ask for no more."""
        best: Callable[[Rows, int], Rows] | None = getattr(session, "best", None)
        return best if self.watch is None and all(ticket.best for ticket in batch) else None

    def _answers(self, outputs: Rows, collator: Collator, batch: list[Ticket], rows: int, *, found: bool) -> list[Rows]:
        """Each request's own rows, of the outputs or of what is best in them, found for all of them at once; with `found` the
        outputs are what is best already."""
        most = max(ticket.best for ticket in batch)
        best: list[Rows] = []
        if self._best and most:
            kept = [output[:rows] for output in outputs]
            best = split(kept if found else self._best(kept, most), batch)
        if best and all(ticket.best for ticket in batch):
            wholes = best
        else:
            wholes = split([output.copy() if self._reused(output, collator) else output for output in outputs], batch)
        return [
            [each[:, : ticket.best] for each in best[number]] if ticket.best else wholes[number]
            for number, ticket in enumerate(batch)
        ]

    def _reused(self, output: np.ndarray, collator: Collator) -> bool:
        """Whether the memory of an output is that of inputs, which others come into."""
        return collator.owns(output) or self._staging.owns(output)
