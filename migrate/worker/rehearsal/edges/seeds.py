"""Seeds: one that a script takes from the clock is the same in each of its runs, which are compared with one another."""

from __future__ import annotations

import contextlib
import numbers
import random
import time
from collections.abc import Iterator
from typing import Any

from ..places import called_by_user
from ..stage import Stage

_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)
"""Of seconds, as clocks count: `time.time()`, `time.time_ns()`."""
_NEAR = 86_400
"""Seconds from now within which a seed is the clock's, what is added to it for an epoch or a rank included."""
_SEED = 0


@contextlib.contextmanager
def stand_in(stage: Stage) -> Iterator[None]:
    def seed(original: Any, value: Any = None, *args: Any, **named: Any) -> Any:
        if _is_the_clocks(value) and called_by_user(stage.root):
            stage.note("time", f"a seed of {_SEED}, not of the clock")
            value = _SEED
        return original(value, *args, **named)

    stage.wrap(random, "seed", seed)
    stage.when_imported("numpy.random", lambda library: stage.wrap(library, "seed", seed))
    stage.when_imported("torch", lambda torch: stage.wrap(torch, "manual_seed", seed))
    yield


def _is_the_clocks(value: Any) -> bool:
    now = time.time()
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number and any(abs(float(value) / unit - now) < _NEAR for unit in _UNITS)
