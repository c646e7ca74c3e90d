"""The simulation beside what was measured: the same traffic, from the same minutes' stages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..simulation.traffic import poisson
from .model import ServerSpec
from .simulation import Cluster, Result, closed, opened
from .stages import Recorded

__all__ = ["TOLERANCE", "Comparison", "compare"]

TOLERANCE = 0.15
# A tail has few requests behind it on both sides, so it is shown and not held to the tolerance.
_SHOWN_ONLY = ("p99, ms",)
_WARM_UP = 1.0


@dataclass(frozen=True)
class Comparison:
    """One figure under one kind of traffic, measured and simulated."""

    traffic: str
    figure: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """The simulated figure over the measured one, minus 1; of a measured 0, 0 where both are, else infinite."""
        if not self.measured:
            return 0.0 if not self.simulated else math.inf
        return self.simulated / self.measured - 1

    @property
    def must_hold(self) -> bool:
        return self.figure not in _SHOWN_ONLY

    @property
    def holds(self) -> bool:
        return abs(self.error) <= TOLERANCE

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "error": round(self.error, 4), "must_hold": self.must_hold, "holds": self.holds}


def compare(recorded: Recorded, *, spec: ServerSpec | None = None, seconds: float = 20.0, seed: int = 0) -> list[Comparison]:
    """Every served run again, in virtual time, for so many virtual seconds; with `spec` instead of what was recorded."""
    cluster = Cluster(spec=spec or recorded.spec, client=recorded.client)
    found: list[Comparison] = []
    for run in recorded.closed:
        result = closed(cluster, connections=run["connections"], seconds=seconds, warm_up=_WARM_UP, seed=seed)
        found += _figures(f"{run['connections']} at a time", run, result, {})
    for run in recorded.opened:
        arrivals = poisson(run["rate"], _WARM_UP + seconds, seed=seed)
        result = opened(cluster, arrivals, timeout=run["timeout_ms"] / 1e3, warm_up=_WARM_UP, seed=seed)
        goodput = {"goodput/s": (run["goodput"]["median"], result.goodput(run["deadline_ms"] / 1e3))}
        found += _figures(f"{run['rate']:,.0f}/s, Poisson", run, result, goodput)
    return found


def _figures(
    traffic: str, run: Mapping[str, Any], result: Result, more: Mapping[str, tuple[float, float]]
) -> Iterator[Comparison]:
    figures = {
        "requests/s": (run["requests_per_second"]["median"], result.rate),
        **more,
        "p50, ms": (run["p50_ms"]["median"], 1e3 * result.latency(0.5)),
        "p99, ms": (run["p99_ms"], 1e3 * result.latency(0.99)),
    }
    for figure, (measured, simulated) in figures.items():
        yield Comparison(traffic, figure, round(measured, 3), round(simulated, 3))
