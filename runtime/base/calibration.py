"""What int8 takes its ranges from: real images, and what they make of the tensors of a graph. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import Precision

if TYPE_CHECKING:
    import numpy as np


class Observer:
    """What the calibration images made of one tensor: its range, and how its channels vary within it."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")
        self._count = 0
        self._total: Any = 0.0
        self._squares: Any = 0.0

    def take(self, low: float, high: float, count: int = 0, totals: Any = 0.0, squares: Any = 0.0) -> None:
        """Take in what is known of some more values: their ends, and for each channel, which has `count` of them, the sums of
        them and of their squares, float64 [channels]; zeros where only the range is asked for."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._count += count
        self._total = self._total + totals
        self._squares = self._squares + squares

    @property
    def signal_to_noise(self) -> float:
        """Of the median channel in 8 bits: with its variance v and the range r of the tensor, v / ((r / 255)^2 / 12), the noise
        of uniform quantization (Bennett 1948). The median, because an outlier is its own signal and drowns all others.
        """
        import numpy as np

        span = max(self.high, 0.0) - min(self.low, 0.0)
        variance = self._squares / self._count - (self._total / self._count) ** 2
        return float("inf") if span == 0 else float(np.median(variance)) * 12 * (255 / span) ** 2


@dataclass(frozen=True, eq=False)
class Calibration:
    """Real inputs, one float32 array [n, ...] per input of the graph.

    `of_portable` (the portable graph's tensors) and `of_program` (the values of torch's program) are filled when first needed,
    so that the images run once for all shares of layers in floats.
    """

    inputs: Sequence[np.ndarray[Any, Any]]
    of_portable: dict[str, Observer] = field(default_factory=dict, repr=False)
    of_program: dict[str, Observer] = field(default_factory=dict, repr=False)


def required(calibration: Calibration | None) -> Calibration:
    """The calibration of a graph that may come without; then a BackendError says what is missing."""
    if calibration is None:
        raise BackendError("int8 takes its ranges from real images; give some to compile (calibration= or images=)")
    return calibration


def layers_in_floats(precision: Precision, count: int) -> int:
    """How many of so many layers keep out of int8: the share, and at least one more at each level.

    Raises BackendError where none would be left.
    """
    found = max(precision.level, round(precision.in_floats * count))
    if found >= count:
        raise BackendError("every layer of this graph would stay in floats")
    return found
