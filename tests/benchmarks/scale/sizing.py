"""The arithmetic of docs/scale.md: from images a day to machines. Every formula says where it is from."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["DAY", "Demand", "Node", "machines"]

DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked for. `peak` is the busiest moment over the day's mean, an assumption; bytes are of an encoded image."""

    images_per_day: float = 100e6
    peak: float = 3.0
    image_bytes: float = 65_000.0

    def __post_init__(self) -> None:
        if not (self.images_per_day > 0 and self.peak >= 1 and self.image_bytes > 0):
            raise ValueError(f"a demand needs images_per_day > 0, peak >= 1 and image_bytes > 0, got {self}")

    @property
    def mean_rate(self) -> float:
        """Images per second on average: N / 86,400."""
        return self.images_per_day / DAY

    @property
    def peak_rate(self) -> float:
        return self.peak * self.mean_rate

    def bytes_per_second(self, rate: float) -> float:
        """What arrives over the network; answers of a few labels are below a hundredth of it."""
        return rate * self.image_bytes


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine. `gpu_rate` is images per second of one GPU, `decode` and `handling` processor seconds per image, `network`
    bytes per second that arrive at most, `gpu_decoding` JPEGs per second that one GPU decodes by itself (0: none).
    """

    gpus: int
    cores: int
    gpu_rate: float
    decode: float
    handling: float
    network: float
    gpu_decoding: float = 0.0

    def limits(self, image_bytes: float) -> dict[str, float]:
        """Images per second that each stage can do by itself; what is least limits the machine.

        Utilization law: a stage with c servers that take S seconds per image is full at c / S images per second (Lazowska,
        Zahorjan, Graham and Sevcik, "Quantitative System Performance", 1984, chapter 3).
        """
        return {
            "GPUs": self.gpus * self.gpu_rate,
            "JPEG decoding and HTTP on the cores": self.host_rate(),
            "network": self.network / image_bytes,
        }

    def host_rate(self) -> float:
        """Images per second of the cores, where GPUs decode what they can and the cores the rest.

        Every image costs `handling`; beyond gpus * gpu_decoding per second each costs `decode` as well.
        """
        by_gpu = self.gpus * self.gpu_decoding
        if self.cores / self.handling <= by_gpu:
            return self.cores / self.handling
        return (self.cores + by_gpu * self.decode) / (self.decode + self.handling)

    def rate(self, image_bytes: float) -> float:
        """Images per second of the machine."""
        return min(self.limits(image_bytes).values())

    def bottleneck(self, image_bytes: float) -> str:
        """The stage that limits it."""
        limits = self.limits(image_bytes)
        return min(limits, key=limits.__getitem__)

    def utilization(self, rate: float, image_bytes: float) -> dict[str, float]:
        """How busy each stage is at so many images per second: U = X / X_max, by the utilization law."""
        return {stage: rate / limit for stage, limit in self.limits(image_bytes).items()}

    def cores_per_gpu(self) -> float:
        """Cores that one GPU at its full rate needs for decoding and HTTP."""
        return self.gpu_rate * (self.decode + self.handling)


def machines(rate: float, per_machine: float, *, utilization: float = 0.7, spare: int = 1) -> int:
    """Machines that carry `rate` at no more than `utilization` each while `spare` of them are down: ceil(rate / (u * x)) + k.

    Below full use since waiting grows as 1 / (1 - u) (Pollaczek and Khinchine); one to spare since one is always being
    replaced, whether it failed or is given a new version.
    """
    if not (rate >= 0 and per_machine > 0 and 0 < utilization <= 1 and spare >= 0):
        raise ValueError("rate and spare must not be negative, per_machine positive, utilization above 0 and at most 1")
    return max(1, math.ceil(rate / (utilization * per_machine) - 1e-9)) + spare
