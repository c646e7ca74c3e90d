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
        self.lows: Any = float("inf")
        self.highs: Any = float("-inf")
        self._count = 0
        self._total: Any = 0.0
        self._squares: Any = 0.0

    def take(self, lows: Any, highs: Any, count: int = 0, totals: Any = 0.0, squares: Any = 0.0) -> None:
        """Take in what is known of some more values: their ends, of all or of each channel, and for each channel, which has
        `count` of them, the sums of them and of their squares, float64 [channels]; zeros where only the range is asked for."""
        import numpy as np

        self.lows, self.highs = np.minimum(self.lows, lows), np.maximum(self.highs, highs)
        self._count += count
        self._total = self._total + totals
        self._squares = self._squares + squares

    def divided(self, by: Any) -> Observer:
        """What is seen where each channel is divided by a positive number of its own, float64 [channels]."""
        found = Observer()
        found.take(self.lows / by, self.highs / by, self._count, self._total / by, self._squares / by**2)
        return found

    @property
    def low(self) -> float:
        import numpy as np

        return float(np.min(self.lows))

    @property
    def high(self) -> float:
        import numpy as np

        return float(np.max(self.highs))

    @property
    def power(self) -> Any:
        """The mean square of each channel, float64 [channels]."""
        return self._squares / self._count

    @property
    def variance(self) -> Any:
        """Of each channel, float64 [channels]."""
        return self._squares / self._count - (self._total / self._count) ** 2

    @property
    def noise(self) -> float:
        """What 8 bits add to its variance, where r is its range with 0 in it: (r / 255)^2 / 12 (Bennett 1948)."""
        return ((max(self.high, 0.0) - min(self.low, 0.0)) / 255) ** 2 / 12


def worst_first(layers: Sequence[tuple[Observer, Observer, Any]]) -> list[int]:
    """The places of layers, those first that lose most where what they read is in 8 bits.

    Each is what it reads, what it gives, and the sums of its squared weights, float64 [channels that it gives]. In turns by two
    measures: the noise in all that it gives beside its variance, and the share of noise in what it reads, averaged over
    channels, because one of large values drowns the others and is all that the first measure sees.
    """
    import numpy as np

    tiny = np.finfo(np.float64).tiny
    given = np.array([read.noise * np.sum(squares) / max(np.sum(made.variance), tiny) for read, made, squares in layers])
    lost = np.array([np.mean(read.noise / np.maximum(read.variance + read.noise, tiny)) for read, _, _ in layers])
    ranks = [np.argsort(np.lexsort((-other, -measure))) for measure, other in ((given, lost), (lost, given))]
    return [int(place) for place in np.lexsort((ranks[0], np.minimum(*ranks)))]


@dataclass(eq=False)
class Calibration:
    """Real inputs, one float32 array [n, ...] per input of the graph.

    `of_portable` (the portable graph's tensors) and `of_program` (the values of torch's program) are filled when first needed,
    so that the images run once for all shares of layers in floats; `has_gates` is whether the portable graph has gates to
    quantize, None until it was read.
    """

    inputs: Sequence[np.ndarray[Any, Any]]
    of_portable: dict[str, Observer] = field(default_factory=dict, repr=False)
    of_program: dict[str, Observer] = field(default_factory=dict, repr=False)
    has_gates: bool | None = None


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
