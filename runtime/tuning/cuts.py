"""What a plan left out for want of time, in one line with the seconds that would have been enough. Torch-free."""

from __future__ import annotations

import logging
import math

from ..base.config import GraphConfig

log = logging.getLogger("headrace.tuning")

_ROOM = 1.1


class Cuts:
    """Collects what was left out. Names are those of candidates and batch sizes."""

    def __init__(self) -> None:
        self._found: list[tuple[str, float]] = []
        self._alone: list[int] = []

    def add(self, name: str, seconds: float) -> None:
        """What needs so many more seconds."""
        self._found.append((name, seconds))

    def add_alone(self, bucket: int, seconds: float) -> None:
        """Sessions for that batch size alone."""
        self._alone.append(bucket)
        self.add("", seconds)

    def line(self, config: GraphConfig, device: str, used: float) -> str:
        """Empty where nothing was left out; else logged, too. `used` are the seconds that tuning took."""
        if not self._found:
            return ""
        seconds = config.seconds(device)
        enough = math.ceil(_ROOM * (max(seconds, used) + sum(needed for _, needed in self._found)))
        names = [*dict.fromkeys(name for name, _ in self._found if name)]
        if self._alone:
            names.append(f"sessions for one batch size alone (batch {', '.join(map(str, sorted(self._alone)))})")
        what = ", ".join(names)
        line = f"max_tuning_seconds={seconds:g} was not enough for {what}; about {enough} would be"
        usual = config.max_tuning_seconds is None or seconds >= GraphConfig().seconds(device)
        # Whoever gives less gives it knowingly; and a call of a script gives less, which prints what is logged to its users.
        log.log(logging.WARNING if usual else logging.DEBUG, "%s", line)
        return line
