"""What a waterfall found, as values: the steps with their figures, each beside the one before it and the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.serving.bench.reporting.result import BenchResult, Spread, plain

from .waterfall_steps import Step

__all__ = ["StepResult", "Waterfall"]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """A step with its figures; they are None for a step that was not measured. Ratios are of requests per second, per round.

    `pss_bytes` is the most memory that its processes had after a measurement, shared pages counted once; `rss_bytes` counts
    them in every process.
    """

    step: Step
    requests_per_second: Spread | None = None
    p50_ms: Spread | None = None
    p99_ms: Spread | None = None
    to_previous: Spread | None = None
    to_start: Spread | None = None
    agreed: int | None = None
    compared: int | None = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None

    @property
    def measured(self) -> bool:
        return self.requests_per_second is not None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.step.to_json(),
            "requests_per_second": plain(self.requests_per_second),
            "p50_ms": plain(self.p50_ms),
            "p99_ms": plain(self.p99_ms),
            "to_previous": plain(self.to_previous),
            "to_start": plain(self.to_start),
            "agreed": self.agreed,
            "compared": self.compared,
            "rss_bytes": self.rss_bytes,
            "pss_bytes": self.pss_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """The steps and the benchmark that measured them, at one concurrency."""

    bench: BenchResult
    steps: tuple[Step, ...]

    @property
    def concurrency(self) -> int:
        return self.bench.concurrency[0]

    @property
    def results(self) -> list[StepResult]:
        """Every step in order, with its ratio to the last one before it that was measured."""
        results: list[StepResult] = []
        previous: str | None = None
        for step in self.steps:
            if step.name not in self.bench.services:
                results.append(StepResult(step=step))
                continue
            results.append(self._result(step, previous))
            previous = step.name
        return results

    def _result(self, step: Step, previous: str | None) -> StepResult:
        bench, level = self.bench, self.concurrency
        measured = bench.of(step.name, level)
        agreement = bench.agreement_of(step.name)
        shared = [one.pss_bytes for one in measured if one.pss_bytes is not None]
        return StepResult(
            step=step,
            requests_per_second=bench.requests_per_second(step.name, level),
            p50_ms=bench.latency_ms(step.name, level, "p50"),
            p99_ms=bench.latency_ms(step.name, level, "p99"),
            to_previous=bench.ratio(level, step.name, reference=previous) if previous else None,
            to_start=bench.ratio(level, step.name) if previous else None,
            agreed=agreement.agreed,
            compared=agreement.compared,
            rss_bytes=max((one.memory_bytes for one in measured), default=None),
            pss_bytes=max(shared, default=None),
        )

    def to_json(self) -> dict[str, Any]:
        """What the benchmark says, with the steps under "waterfall"."""
        return {**self.bench.to_json(), "waterfall": [one.to_json() for one in self.results]}
