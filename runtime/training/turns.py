"""A captured step and the eager one in turns, timed, until the faster is known."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from ..parallel.agreement import Agreement
from .options import StepRecord
from .step import CapturedStep

_TURNS, _FEWEST_TURNS = 7, 3  # timed steps of each way before one is chosen; and before one is that was faster in every turn
_GAIN = 0.97  # of eager's time, at most: what a captured step must take to be chosen, since steps of one kind vary by that


@dataclass(eq=False)
class Turns:
    """What is known of one kind of step."""

    record: StepRecord
    captured: CapturedStep | None = None
    times: dict[str, list[float]] = field(default_factory=lambda: {"eager": [], "captured": []})
    tried: bool = False
    agreement: Agreement = field(default_factory=lambda: Agreement(()))

    def next(self) -> str:
        """Whose turn it is, or the way that was chosen."""
        if self.record.captured_ms is not None:
            return self.record.way
        return min(("captured", "eager"), key=lambda way: len(self.times[way]))

    def took(self, way: str, seconds: float) -> bool:
        """Note a step's time; whether one of the ways is chosen by that."""
        self.times[way].append(seconds)
        # The first of each is left out: it fills caches for the others.
        eager, captured = (self.times[way][1:] for way in ("eager", "captured"))
        turns = min(len(eager), len(captured))
        # Ranks that counted turns by their own times would not ask each other at the same step.
        plain = turns >= _FEWEST_TURNS and not self.agreement
        if turns < _TURNS and not (plain and (max(captured) < _GAIN * min(eager) or max(eager) < min(captured))):
            return False
        record = self.record
        record.eager_ms, record.captured_ms = (1000 * statistics.median(times) for times in (eager, captured))
        # Ranks measure different times, and those that chose differently would wait for each other for ever.
        record.eager_ms, record.captured_ms = self.agreement.first((record.eager_ms, record.captured_ms))
        if record.captured_ms > _GAIN * record.eager_ms:
            record.way, record.why = "eager", "; ".join(filter(None, [record.why, "eager is as fast"]))
        return True
