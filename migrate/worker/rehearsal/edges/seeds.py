"""Seeds: one that a script takes from the clock, or NumPy from the system, is the same in each of its runs, which are compared
with one another. What a search for hyperparameters draws is told."""

from __future__ import annotations

import contextlib
import functools
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
    stage.when_imported("numpy.random.bit_generator", lambda library: stage.patch(library, "randbits", lambda bits: _SEED))
    stage.when_imported("optuna.trial", functools.partial(_told, stage))
    yield


def _told(stage: Stage, library: Any) -> None:
    """Say what a trial of optuna's suggests: another one may build another network."""

    def suggest(original: Any, self: Any, name: str, *args: Any, **named: Any) -> Any:
        value = original(self, name, *args, **named)
        if called_by_user(stage.root):
            stage.note("arguments", f"{name}={value} is of a trial of a search, of which others may be meant")
        return value

    for kind in ("categorical", "float", "int"):
        if hasattr(library.Trial, f"suggest_{kind}"):
            stage.wrap(library.Trial, f"suggest_{kind}", suggest)


def _is_the_clocks(value: Any) -> bool:
    now = time.time()
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number and any(abs(float(value) / unit - now) < _NEAR for unit in _UNITS)
