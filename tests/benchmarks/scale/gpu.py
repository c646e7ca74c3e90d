"""How fast a GPU is: measured by `make bench-gpu` where docs/ has that, else published figures, marked as such."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import BenchError

__all__ = ["GpuFigures", "figures", "fixed_seconds", "from_bench", "published"]

# MLPerf Inference, ResNet-50 on one H200, datacenter division: images per second offline, and as a server that answers 99 %
# within the limit given here. int8, images preloaded and preprocessed: no HTTP, no decoding.
OFFLINE, ONLINE, P99 = 94_600.0, 79_000.0, 0.013
# JPEGs per second by one A100's decoding engines, the lower end of what is published (5 to 7 thousand).
JPEG_DECODING = 5_000.0
_BUCKETS = tuple(1 << power for power in range(10))


@dataclass(frozen=True, kw_only=True)
class GpuFigures:
    """`seconds` per batch of each bucket; `online` images per second as a server; `ours` says that we measured it."""

    device: str
    source: str
    seconds: Mapping[int, float]
    online: float
    ours: bool

    @property
    def offline(self) -> float:
        """Images per second in the best batch."""
        return max(bucket / seconds for bucket, seconds in self.seconds.items())


def fixed_seconds(offline: float, online: float, p99: float) -> float:
    """What a batch takes beyond its images, from two rates of one device.

    Who arrives just after a batch began waits for it and then takes as long again, so p99 is about two batches: each lasts
    p99 / 2 and holds online * p99 / 2 images, which take 1 / offline each; the rest is fixed.
    """
    return p99 / 2 * (1 - online / offline)


def published() -> GpuFigures:
    """One H200 by MLPerf's figures, as a fixed time per batch and a time per image."""
    fixed = fixed_seconds(OFFLINE, ONLINE, P99)
    return GpuFigures(
        device="NVIDIA H200",
        source=f"published (MLPerf Inference, ResNet-50: {OFFLINE:,.0f}/s offline, {ONLINE:,.0f}/s at a p99 of "
        f"{1e3 * P99:g} ms; not measured by us)",
        seconds={bucket: fixed + bucket / OFFLINE for bucket in _BUCKETS},
        online=ONLINE,
        ours=False,
    )


def from_bench(path: Path, *, model: str = "resnet50") -> GpuFigures | None:
    """What `make bench-gpu` measured; None for a run that was only a trial, without a GPU or with small models.

    A server is believed to reach what its best bucket whose batch takes half of 13 ms reaches. Raises BenchError for a file
    that cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["quick"] or found["device"] == "cpu" or model not in found["models"]:
            return None
        seconds = {
            int(batch): (line["plan"]["ms"] if "plan" in line else min(one["ms"] for one in line.values())) / 1e3
            for batch, line in found["models"][model]["batches"].items()
            if line
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"{path} cannot be read ({error}); `make bench-gpu` writes it") from error
    if not seconds:
        return None
    short = {batch: taken for batch, taken in seconds.items() if taken <= P99 / 2} or seconds
    return GpuFigures(
        device=found["device"],
        source=f"{path.name}, `{found['command']}` on {found['date']}: Headrace's plan, or else the fastest way to run a batch",
        seconds=dict(sorted(seconds.items())),
        online=max(batch / taken for batch, taken in short.items()),
        ours=True,
    )


def figures(docs: Path) -> GpuFigures:
    """The newest of docs/bench-gpu*.json that holds a GPU's figures, else what is published."""
    for path in sorted(docs.glob("bench-gpu*.json"), key=lambda one: one.stat().st_mtime, reverse=True):
        if (found := from_bench(path)) is not None:
            return found
    return published()
