"""What a script makes of a model's outputs with NumPy, up to where it chooses by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

_Chosen = Callable[[str, np.ndarray, Any], None]
"""Is told the function that chooses, the numbers, and along which axis."""


class Followed(np.ndarray):
    """An array that a model's output became, and whatever NumPy makes of it: `chosen` hears of what is chosen from that."""

    chosen: _Chosen | None

    def __array_finalize__(self, source: Any) -> None:
        self.chosen = getattr(source, "chosen", None)

    def argmax(self, axis: Any = None, *args: Any, **named: Any) -> Any:
        """As of any array."""
        return self._choose("argmax", axis, *args, **named)

    def argmin(self, axis: Any = None, *args: Any, **named: Any) -> Any:
        """As of any array."""
        return self._choose("argmin", axis, *args, **named)

    def argsort(self, axis: Any = -1, *args: Any, **named: Any) -> Any:
        """As of any array."""
        return self._choose("argsort", axis, *args, **named)

    def _choose(self, name: str, axis: Any, *args: Any, **named: Any) -> Any:
        plain: np.ndarray = self.view(np.ndarray)
        if self.chosen is not None and plain.dtype.kind == "f":
            self.chosen(name, plain, axis)
        return getattr(plain, name)(axis, *args, **named)


Followed.__name__ = "array"  # as which NumPy prints any


def followed(array: np.ndarray, chosen: _Chosen) -> Followed:
    """The same array, of which `chosen` hears."""
    made = cast(Followed, array.view(Followed))
    made.chosen = chosen
    return made
