"""What a benchmark measures, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..options import OptionGroup, option


@dataclass(frozen=True, kw_only=True)
class BenchConfig(OptionGroup):
    """What to measure. `models` is the model repository; `model` may be left out when it holds one.

    `baseline` is the recipe of the original model (a dict as `migrate` resolves it) or None to measure Headrace alone; it
    runs on the device that the model's plan is for. `images` are files or folders; without any, see `choose_images`. Every
    concurrency is measured `rounds` times for `seconds` each, after `warm_up_seconds`. With `restart` every round starts the
    services anew: the spread then holds for other runs too, not only within this one.
    """

    title = "Options"

    models: Path
    out: Path
    model: str | None = None
    images: tuple[Path, ...] = ()
    baseline: Mapping[str, Any] | None = None
    concurrency: tuple[int, ...] = (1, 4, 16)
    rounds: int = option(3, "Interleaved repetitions.", least=1)
    restart: bool = option(True, "Start the services anew for every round: the spread of other runs.")
    trust_repository: bool = option(False, "Run the baseline's code, and what packages hold, with your rights.")
    seconds: float = option(5.0, "Length of one measurement.", above=0)
    protocol: Literal["http", "grpc"] = option("http", "http or grpc; the baseline speaks HTTP only.")
    processes: int = option(1, "Processes of the load generator, sharing the connections.", least=1)
    warm_up_seconds: float = 1.0
    start_seconds: float = 300.0
    max_images: int = 256
    k: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.concurrency or min(self.concurrency) < 1 or len(set(self.concurrency)) < len(self.concurrency):
            raise ValueError(f"--concurrency must be different positive numbers, got {self.concurrency}")
        if min(self.max_images, self.k) < 1 or self.start_seconds <= 0 or self.warm_up_seconds < 0:
            raise ValueError("max_images, k and start_seconds must be positive, warm_up_seconds not negative")
        if self.protocol == "grpc" and self.baseline is not None:
            raise ValueError("--protocol grpc measures Headrace alone: the baseline service speaks HTTP only")
        if self.processes > min(self.concurrency):
            raise ValueError(f"--processes must be at most the lowest concurrency, got {self.processes}")
