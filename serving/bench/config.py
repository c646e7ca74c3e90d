"""What a benchmark measures, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BenchConfig"]


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What to measure. `models` is the model repository; `model` may be left out when it holds one.

    `baseline` is the recipe of the original model (a dict as `migrate` resolves it) or None to measure Headrace alone; it
    runs on the device that the model's plan is for. `images` are files or folders; without any, see
    `choose_images`. Every concurrency is measured `rounds` times for `seconds` each, after `warm_up_seconds`. With `restart`
    every round starts the services anew: the spread then holds for other runs too, not only within this one.
    `protocol` is "http" or "grpc", which the baseline does not speak. `processes` of the load generator share the connections.
    """

    models: Path
    out: Path
    model: str | None = None
    images: tuple[Path, ...] = ()
    baseline: Mapping[str, Any] | None = None
    concurrency: tuple[int, ...] = (1, 4, 16)
    rounds: int = 3
    restart: bool = True
    seconds: float = 5.0
    warm_up_seconds: float = 1.0
    start_seconds: float = 300.0
    max_images: int = 256
    k: int = 5
    protocol: str = "http"
    processes: int = 1

    def __post_init__(self) -> None:
        if (
            not self.concurrency
            or any(number < 1 for number in self.concurrency)
            or len(set(self.concurrency)) < len(self.concurrency)
        ):
            raise ValueError(f"concurrency must be different positive numbers, got {self.concurrency}")
        for name in ("rounds", "max_images", "k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seconds <= 0 or self.start_seconds <= 0 or self.warm_up_seconds < 0:
            raise ValueError("seconds and start_seconds must be positive, warm_up_seconds not negative")
        if self.protocol not in ("http", "grpc"):
            raise ValueError(f"protocol must be 'http' or 'grpc', got {self.protocol!r}")
        if self.protocol == "grpc" and self.baseline is not None:
            raise ValueError("protocol 'grpc' measures Headrace alone: the baseline service speaks HTTP only")
        if not 1 <= self.processes <= min(self.concurrency):
            raise ValueError(f"processes must be from 1 to the lowest concurrency, got {self.processes}")
