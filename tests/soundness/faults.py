"""A planted fault, who noticed it, and how small it may get before nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_STEPS, _STEP = 12, 10.0


@dataclass(frozen=True)
class Fault:
    """`plant(magnitude)` plants it, runs what is to notice, and returns who did, in words, or None.

    `largest` is the magnitude that must be noticed, in `unit`; a fault without one is there or not.
    """

    name: str
    stage: str
    plant: Callable[[float], str | None]
    largest: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Caught:
    """`by` is None where nobody noticed; `smallest` is the least that was, of magnitudes that are each a tenth of the last."""

    fault: Fault
    by: str | None
    smallest: float | None = None

    @property
    def row(self) -> str:
        size = "any" if self.smallest is None else f"{self.smallest:.2g} {self.fault.unit}".strip()
        return f"| {self.fault.name} | {self.fault.stage} | {self.by or '**nobody**'} | {size if self.by else '-'} |"


def examine(fault: Fault) -> Caught:
    """Plant it at its largest, then a tenth as large again and again while it is noticed."""
    magnitude = fault.largest or 1.0
    by = fault.plant(magnitude)
    if by is None or fault.largest is None:
        return Caught(fault, by)
    for _ in range(_STEPS):
        if fault.plant(magnitude / _STEP) is None:
            break
        magnitude /= _STEP
    return Caught(fault, by, magnitude)


def table(results: Iterable[Caught]) -> str:
    return "\n".join(["| fault | stage | caught by | smallest noticed |", "|---|---|---|---|", *(item.row for item in results)])
