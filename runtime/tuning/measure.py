"""Time sessions against each other: interleaved, so that what else the machine does hits all of them alike. Torch-free."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import psutil

from ...errors import BackendError
from ..artifact.agreement import Array
from ..base.session import HoldsRows, Session

_LEAST_ROUNDS = 3
_MEGABYTE = 1 << 20
_LEAK = 0.1 * _MEGABYTE  # per call; the pages of a process are counted, so less is not told from its own work
_USUAL_ROUNDS = 7
_MOST_ROUNDS = 25
_SAMPLE_SECONDS = 0.002  # shorter calls are timed several at a time
_SETTLE_SECONDS = 0.1  # shorter calls would feel the spinning threads and cold caches that the session before leaves
_HOPELESS = 2.0  # times the best median: not measured further after three rounds,
_BEYOND_HOPE = 1.5  # times that, or after the first, if a call is so long
_LONG_MS = 50.0  # that no hiccup makes it three times longer
_ALIKE = 0.04  # share of the best time that nobody would notice
_NOISY = 0.1  # share of a median that its spread is where others compute, too: three calls tell little then
_NOISY_SECONDS = 1.0  # beyond the time, until there are seven


@dataclass
class Samples:
    """Seconds per call of one session at one batch size."""

    seconds: list[float] = field(default_factory=list)
    grown: list[float] = field(default_factory=list)  # bytes by which the process's memory grew per call, by round
    failed: str = ""  # what its library said where it could not go on, such as that there is no memory

    @property
    def median_ms(self) -> float:
        return 1000 * float(np.median(self.seconds))

    @property
    def spread_ms(self) -> float:
        """The interquartile range."""
        return 1000 * float(np.percentile(self.seconds, 75) - np.percentile(self.seconds, 25))

    @property
    def scatters(self) -> bool:
        """Whether calls differ as they do beside other processes."""
        return self.spread_ms > _NOISY * self.median_ms

    @property
    def leak(self) -> str | None:
        """Whether memory grows with every call; what a library allocates once, it does in the first round."""
        if len(self.grown) < _LEAST_ROUNDS:
            return None
        least = float(np.percentile(self.grown[1:], 25, method="lower"))
        return f"the process's memory grew by {least / _MEGABYTE:.2g} MB with every call" if least > _LEAK else None


def measure(
    sessions: Sequence[Session],
    inputs: Sequence[Array],
    *,
    seconds: float,
    patience: float = _HOPELESS,
    clock: Callable[[], float] | None = None,
    pause: float = 0.0,
) -> list[Samples]:
    """Samples of each session on the same inputs, after one call to warm up.

    At least three rounds (one, for a long call that takes half as long again as `patience` times the best; seven, where memory
    grew in all so far, or times scatter and a second more is enough); then until the fastest is told from the next, or is
    surely within 4 % of it, or `seconds` are over by the clock (the wall's unless one is given), or 25 rounds. What takes
    `patience` times the best is not measured further, nor what `failed`. Nothing runs for `pause` seconds before each turn, for
    threads of the one before may spin. On a device that all sessions can be given rows on ahead, these lie there: to copy them
    takes as long for each and up to three times what the computation takes, and a server copies while it computes.
    """
    clock = clock or time.monotonic
    deadline = clock() + seconds
    held = [run for session in sessions if (run := _held(session, inputs)) is not None]
    runs: list[Callable[[], object]] = [partial(session.run, inputs) for session in sessions]
    runs = held if len(held) == len(runs) else runs
    samples, process = [Samples() for _ in sessions], psutil.Process()

    def timed(index: int, calls: int, *, settle: bool) -> float:
        try:
            return _timed(runs[index], calls, settle=settle)
        except BackendError as error:
            samples[index].failed = str(error)
            return float("inf")

    lengths = [max(timed(index, 1, settle=False), 1e-9) for index in range(len(sessions))]
    calls = [max(1, math.ceil(_SAMPLE_SECONDS / length)) for length in lengths]
    settle = [length < _SETTLE_SECONDS for length in lengths]
    running = [index for index in range(len(sessions)) if not samples[index].failed]
    for round_number in range(_MOST_ROUNDS):
        # The order turns, so that no session always runs after the same other one.
        for offset in range(len(running)):
            index = running[(offset + round_number) % len(running)]
            if not samples[index].failed:
                if pause:
                    time.sleep(pause)
                before = process.memory_info().rss
                samples[index].seconds.append(timed(index, calls[index], settle=settle[index]))
                samples[index].grown.append((process.memory_info().rss - before) / (calls[index] + settle[index]))
        running = [index for index in running if not samples[index].failed]
        if not running:
            break
        best = min(samples[index].median_ms for index in running)
        running = [index for index in running if not _hopeless(samples[index].median_ms, best, round_number + 1, patience)]
        if round_number + 1 < _LEAST_ROUNDS:
            continue
        if round_number + 1 < _USUAL_ROUNDS and any(samples[index].leak for index in running):
            continue  # a library that still allocates what it keeps, or a leak: more rounds tell
        usual = round_number + 1 >= _USUAL_ROUNDS
        told_apart = usual and _separated([samples[index] for index in running])
        scatter = not usual and len(running) > 1 and any(samples[index].scatters for index in running)
        if told_apart or clock() >= deadline + (_NOISY_SECONDS if scatter else 0.0):
            break
    return samples


def _hopeless(median_ms: float, best_ms: float, rounds: int, patience: float) -> bool:
    if rounds < _LEAST_ROUNDS:
        return median_ms > max(_LONG_MS, _BEYOND_HOPE * patience * best_ms)
    return median_ms > patience * best_ms


def _held(session: Session, inputs: Sequence[Array]) -> Callable[[], object] | None:
    """What computes these rows, which lie on the session's device already; None where it has none or they do not fit there."""
    try:
        return session.held(inputs) if isinstance(session, HoldsRows) else None
    except BackendError:
        return None


def _timed(run: Callable[[], object], calls: int, *, settle: bool) -> float:
    if settle:
        run()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _separated(samples: Sequence[Samples]) -> bool:
    """Whether more rounds would change nothing: the fastest is told from the next, or whichever of them is taken is as good. A
    median of n samples is as sure as their spread by the root of n."""
    ranked = sorted(samples, key=lambda item: item.median_ms)
    if len(ranked) < 2:
        return True
    first, second = ranked[:2]
    apart, spread = second.median_ms - first.median_ms, max(first.spread_ms, second.spread_ms)
    return apart > spread or apart + spread / math.sqrt(len(first.seconds)) < _ALIKE * first.median_ms
