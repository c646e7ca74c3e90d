"""The highest rate of Poisson traffic that a service sustains: 99 % of all requests answered within a limit.

python -m tests.benchmarks.serving.sustainable http://127.0.0.1:8000/v1/classify/resnet50 IMAGES... --p99-ms 15
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import BenchError
from headrace.serving.bench.images import choose_images
from headrace.serving.bench.load.histogram import Histogram
from headrace.serving.bench.load.load import LoadRequest, LoadResult
from headrace.serving.bench.load.loadgen import run

__all__ = ["Step", "Sweep", "find_sustainable", "goodput", "in_time"]

SHARE = 0.99
_HIGHEST_RATE = 1e6
# What a client sees includes its own way to the server and back, so the server is told a little less than the deadline.
SERVER_SHARE = 0.8


@dataclass(frozen=True)
class Step:
    """One rate that was tried."""

    rate: float
    sustained: bool
    result: LoadResult


@dataclass(frozen=True)
class Sweep:
    """The steps of a sweep in the order they were made. `sustainable` is in requests per second, 0 when no rate was."""

    limit_seconds: float
    steps: tuple[Step, ...]

    @property
    def sustainable(self) -> float:
        return max((step.rate for step in self.steps if step.sustained), default=0.0)

    @property
    def best_goodput(self) -> float:
        """The most requests per second that were answered within the limit, at whatever rate."""
        return max(goodput(step.result, self.limit_seconds) for step in self.steps)


def in_time(
    url: str,
    images: tuple[str, ...],
    *,
    rate: float,
    deadline: float,
    seconds: float,
    warm_up_seconds: float = 1.0,
    seed: int = 0,
) -> LoadRequest:
    """Poisson traffic to a classification route whose requests allow `deadline` seconds, on connections enough for it."""
    return LoadRequest(
        url=f"{url}?timeout_ms={1e3 * SERVER_SHARE * deadline:g}",
        images=images,
        kind="poisson",
        rate=rate,
        connections=min(1024, max(16, math.ceil(3 * rate * deadline))),
        seconds=seconds,
        warm_up_seconds=warm_up_seconds,
        timeout_seconds=max(10.0, 4 * deadline),
        seed=seed,
    )


def goodput(result: LoadResult, limit_seconds: float) -> float:
    """Requests per second that were answered within that time of being due."""
    return Histogram.from_json(result.histogram).within(limit_seconds) / result.seconds


def in_time_share(result: LoadResult, limit_seconds: float) -> float:
    """Of all requests that were due in the window (answered late, rejected and failed ones too), the share answered in time."""
    latencies = Histogram.from_json(result.histogram)
    due = len(latencies) + sum(result.rejected.values()) + sum(result.errors.values())
    return latencies.within(limit_seconds) / due if due else 0.0


def find_sustainable(
    measure: Callable[[float], LoadResult], *, limit_seconds: float, start: float = 8.0, precision: float = 0.05
) -> Sweep:
    """Double the rate from `start` until it is not sustained (or halve it until it is), then halve the interval between.

    `measure` runs Poisson traffic at a rate. Ends when the rates that were and were not sustained are within `precision` of
    each other. Raises BenchError when not even one request in ten seconds is sustained.
    """
    if limit_seconds <= 0 or start <= 0 or not 0 < precision < 1:
        raise ValueError("limit_seconds and start must be positive, precision between 0 and 1")
    steps: list[Step] = []

    def sustained(rate: float) -> bool:
        result = measure(rate)
        steps.append(Step(rate, in_time_share(result, limit_seconds) >= SHARE, result))
        return steps[-1].sustained

    low, high = (start, start * 2) if sustained(start) else (start / 2, start)
    if steps[0].sustained:
        while high < _HIGHEST_RATE and sustained(high):
            low, high = high, high * 2
    else:
        while not sustained(low):
            if low < 0.1:
                seen = steps[-1].result
                why = next(iter(seen.error_examples.values()), f"p99 {seen.latency_ms.get('p99', 0.0):.0f} ms")
                raise BenchError(
                    f"not even {low:.2g} requests per second are answered within {1e3 * limit_seconds:g} ms: {why}"
                )
            low, high = low / 2, low
    while high / low > 1 + precision:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if sustained(middle) else (low, middle)
    return Sweep(limit_seconds, tuple(steps))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving.sustainable", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("url", help="http://HOST:PORT/v1/classify/MODEL, or grpc://HOST:PORT/MODEL_classify")
    parser.add_argument("images", type=Path, nargs="+", help="image files or folders to send")
    parser.add_argument("--p99-ms", type=float, default=15.0, help="answer 99 %% of the requests within this (default 15)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each step (default 5)")
    parser.add_argument("--connections", type=int, default=64, help="requests that may be under way (default 64)")
    parser.add_argument("--processes", type=int, default=1, help="processes that send them (default 1)")
    chosen = parser.parse_args(arguments)
    try:
        found = choose_images(chosen.images, repository=None, model=Path(), synthetic_into=Path(), limit=256)

        def measure(rate: float) -> LoadResult:
            request = LoadRequest(
                url=chosen.url,
                images=tuple(map(str, found.files)),
                kind="poisson",
                rate=rate,
                connections=chosen.connections,
                processes=chosen.processes,
                seconds=chosen.seconds,
            )
            return run(request)

        sweep = find_sustainable(measure, limit_seconds=chosen.p99_ms / 1e3)
    except (BenchError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for step in sorted(sweep.steps, key=lambda one: one.rate):
        p99 = f"{step.result.latency_ms['p99']:.1f} ms" if step.result.latency_ms else "-"
        says = "sustained" if step.sustained else "too much"
        rejected = step.result.rejected_per_second
        print(f"{step.rate:>10,.1f}/s  {says}  p99 {p99}, rejected {rejected:,.1f}/s, failed {step.result.errors}")
    print(f"sustainable: {sweep.sustainable:,.1f} requests per second within {chosen.p99_ms:g} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
