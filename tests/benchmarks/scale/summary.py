"""What the rounds of a measurement come to: distributions of the stages, and the figures of the served runs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import BenchError
from headrace.serving.bench.load.histogram import Histogram
from headrace.serving.bench.load.load import LoadResult

from .model import Distribution

__all__ = ["Found", "served_of", "server_profile", "stages_of"]

_READY = re.compile(r"is ready, (\d+) instances?, (.*)")
_TIMING = re.compile(r"batch (\d+) ([0-9.e+-]+) ms")


@dataclass
class Found:
    """What the rounds gave so far."""

    probed: list[dict[str, Any]] = field(default_factory=list)
    hollow: list[tuple[LoadResult, float]] = field(default_factory=list)
    served: dict[str, list[tuple[LoadResult, float]]] = field(default_factory=dict)


def stages_of(found: Found) -> dict[str, Any]:
    """The stages over all rounds."""
    probed = found.probed
    batches = {
        bucket: Distribution.of([seconds for one in probed for seconds in one["batch"][bucket]]).to_json()
        | {"samples": sum(len(one["batch"][bucket]) for one in probed)}
        for bucket in probed[0]["batch"]
    }
    decode = Distribution.of([seconds for one in probed for seconds in one["decode"]])
    lone, many = found.hollow[::2], found.hollow[1::2]
    handling = statistics.median(used for _, used in many)
    client = statistics.median(result.client_cpu_us_per_request for result, _ in many)
    # What one request at a time takes beyond processor time: waking threads, and the way through the sockets.
    waited = [1e3 * result.latency_ms["p50"] - 1e6 * used - result.client_cpu_us_per_request for result, used in lone]
    return {
        "decode": decode.to_json() | {"samples": sum(len(one["decode"]) for one in probed)},
        "batch": batches,
        "together": _medians([one["together"] for one in probed]),
        "beside": [_medians(pairs) for pairs in zip(*(one["beside"] for one in probed), strict=True)],
        "handling_us": round(1e6 * handling, 1),
        "handing_over_us": round(max(0.0, statistics.median(waited)), 1),
        "client_us": round(client, 1),
    }


def _medians(lists: Sequence[Sequence[float]]) -> list[float]:
    return [round(statistics.median(values), 4) for values in zip(*lists, strict=True)]


def served_of(found: Found, deadline: float, server_share: float) -> dict[str, Any]:
    """The served runs over all rounds. Rates and medians have the lowest and the highest round, p99 is that of all requests."""
    kinds: dict[str, list[dict[str, Any]]] = {"closed": [], "open": []}
    for kind, runs in found.served.items():
        what, given = kind.split()
        results = [result for result, _ in runs]
        latencies = Histogram()
        for result in results:
            latencies.merge(Histogram.from_json(result.histogram))
        summary: dict[str, Any] = {
            "requests_per_second": _spread([result.requests_per_second for result in results]),
            "p50_ms": _spread([result.latency_ms["p50"] for result in results]),
            "p99_ms": round(latencies.percentile_ms(0.99), 3),
            "samples": len(latencies),
            "server_cpu_ms": round(1e3 * statistics.median(used for _, used in runs), 3),
            "seconds": results[0].seconds,
        }
        if what == "closed":
            kinds[what].append({"connections": int(given), **summary})
            continue
        merged = [Histogram.from_json(result.histogram) for result in results]
        goodput = [one.within(deadline) / result.seconds for one, result in zip(merged, results, strict=True)]
        rejected = sum(sum(result.rejected.values()) for result in results)
        kinds[what].append(
            {
                "rate": float(given),
                "deadline_ms": 1e3 * deadline,
                "timeout_ms": 1e3 * server_share * deadline,
                **summary,
                "goodput": _spread(goodput),
                "rejected": rejected,
            }
        )
    return kinds


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 3), "low": round(min(values), 3), "high": round(max(values), 3)}


def server_profile(log: str, model: str) -> tuple[int, dict[str, float]]:
    """The instances and milliseconds per bucket that the server's warm-up says it found."""
    for line in log.splitlines():
        if line.startswith(f"{model}: ") and (ready := _READY.search(line)):
            timings = {bucket: float(milliseconds) for bucket, milliseconds in _TIMING.findall(ready[2])}
            if timings:
                return int(ready[1]), timings
    raise BenchError(f"the server did not say how fast {model} is; its log:\n{log[-2000:]}")
