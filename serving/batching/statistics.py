"""What a model did so far, counted the way Triton's statistics extension counts it. Durations are in nanoseconds."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...errors import ExecutionError, OverloadedError

# Why requests fail, in the words of Triton's metric: rejected or too late; given up by the caller; failed by the model; wrong.
FAILURES = ("REJECTED", "CANCELED", "BACKEND", "OTHER")

# Upper bounds, in seconds, of the latency histogram: ten per decade, the preferred numbers R10 of ISO 3, from 0.1 ms to 100 s.
# A quantile read from it is off by less than a bucket, which is a quarter wide; and 1, 2.5, 5, 10 are among them, for coarser
# histograms.
_R10 = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
LATENCY_BOUNDS = (*(round(step * 10.0**power, 9) for power in range(-4, 2) for step in _R10), 100.0)

# Upper bounds, in seconds, of the deadline-slack histogram: what was left of the time a request allowed when it was answered.
SLACK_BOUNDS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


def failure(error: BaseException) -> str:
    """Which of FAILURES an error is that ends a request."""
    if isinstance(error, OverloadedError):
        return "REJECTED"
    return "BACKEND" if isinstance(error, ExecutionError) else "OTHER"


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """One execution: `rows` real rows, and how long collating, running and splitting took."""

    rows: int
    input_ns: int
    infer_ns: int
    output_ns: int


@dataclass(slots=True)
class _Duration:
    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        self.count += count
        self.ns += ns * count

    def to_json(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.ns}


_KINDS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@dataclass
class ModelStatistics:
    """Counters of one model version; every method may be called from any thread."""

    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    durations: dict[str, _Duration] = field(default_factory=lambda: {kind: _Duration() for kind in _KINDS})
    batches: dict[int, dict[str, _Duration]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURES, 0))
    slack: list[int] = field(default_factory=lambda: [0] * (len(SLACK_BOUNDS) + 1))
    slack_seconds: float = 0.0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def batch_done(self, times: BatchTimes, requests: Iterable[tuple[int, int, float]]) -> None:
        """One execution answered these requests: (ns since arrival, ns in the queue, seconds left of the deadline) each."""
        with self._lock:
            self.execution_count += 1
            self.inference_count += times.rows
            self.last_inference_ms = time.time_ns() // 1_000_000
            of_size = self.batches.setdefault(
                times.rows, {kind: _Duration() for kind in ("compute_input", "compute_infer", "compute_output")}
            )
            spent = (("compute_input", times.input_ns), ("compute_infer", times.infer_ns), ("compute_output", times.output_ns))
            for kind, ns in spent:
                of_size[kind].add(ns)
            count = 0
            for total_ns, queue_ns, slack in requests:
                count += 1
                self._answered(total_ns)
                self.durations["queue"].add(queue_ns)
                self.slack[bisect_left(SLACK_BOUNDS, slack)] += 1
                self.slack_seconds += slack
            for kind, ns in spent:
                self.durations[kind].add(ns, count)

    def composed(self, rows: int, total_ns: int) -> None:
        """One request was answered without a batch of its own: an ensemble's, by other models, or a decoded image.

        All of the time counts as computing. The other parts are counted too, since perf_analyzer looks for a model's version by
        the count of its queue.
        """
        with self._lock:
            self.execution_count += 1
            self.inference_count += rows
            self.last_inference_ms = time.time_ns() // 1_000_000
            self._answered(total_ns)
            self.durations["compute_infer"].add(total_ns)
            for kind in ("queue", "compute_input", "compute_output"):
                self.durations[kind].add(0)

    def cached(self, lookup_ns: int) -> None:
        """One request was answered from the cache, so long after it came: it succeeded, and counts as no inference."""
        with self._lock:
            self.last_inference_ms = time.time_ns() // 1_000_000
            self._answered(lookup_ns)
            self.durations["cache_hit"].add(lookup_ns)

    def missed(self, lookup_ns: int) -> None:
        """The cache did not have what a request asks for; looking it up and keeping it then took so long."""
        with self._lock:
            self.durations["cache_miss"].add(lookup_ns)

    def failed(self, total_ns: int, reason: str) -> None:
        """One request ended without an answer, that long after it arrived, for one of the reasons in FAILURES."""
        with self._lock:
            self.durations["fail"].add(total_ns)
            self.failures[reason] += 1

    def _answered(self, total_ns: int) -> None:
        """One request was answered so long after it arrived; with the lock held."""
        self.durations["success"].add(total_ns)
        self.latencies[bisect_left(LATENCY_BOUNDS, total_ns / 1e9)] += 1

    def snapshot(self) -> dict[str, Any]:
        """A consistent copy in the form of the statistics extension, without name and version."""
        with self._lock:
            return {
                "last_inference": self.last_inference_ms,
                "inference_count": self.inference_count,
                "execution_count": self.execution_count,
                "inference_stats": {kind: duration.to_json() for kind, duration in self.durations.items()},
                "batch_stats": [
                    {"batch_size": rows, **{kind: duration.to_json() for kind, duration in kinds.items()}}
                    for rows, kinds in sorted(self.batches.items())
                ],
                "memory_usage": [],
                "response_stats": {},
            }

    def failure_counts(self) -> dict[str, int]:
        """Failed requests by reason; together they are the count of "fail" in the snapshot."""
        with self._lock:
            return dict(self.failures)

    def slack_histogram(self) -> tuple[list[int], float]:
        """Counts per bound of SLACK_BOUNDS, plus one beyond the last, and the sum in seconds."""
        with self._lock:
            return list(self.slack), self.slack_seconds

    def latency_histogram(self) -> tuple[list[int], float]:
        """Answered requests per bound of LATENCY_BOUNDS, plus one beyond the last, and the sum of their seconds."""
        with self._lock:
            return list(self.latencies), self.durations["success"].ns / 1e9
