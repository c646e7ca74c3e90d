"""Two sessions for one batch size take turns at the batches that come, until one is clearly the quicker. Few run twice, to see
that both answer alike."""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .ticket import Rows, Runner

log = logging.getLogger("headrace.serving")

# A session that joins must take so much less time.
WORTH_IT = 1.05


class RandomWalk:
    """Votes until one side has won: Wald's sequential test (1945) with steps of one.

    Whoever wins 63 % of the votes is kept 19 times in 20, and who wins 37 % 1 time in 200. What stays in balance is not kept.
    """

    KEPT, LOST, MOST = 10, -6, 200

    def __init__(self) -> None:
        self._at = self._votes = 0

    def vote(self, better: bool) -> bool | None:
        """Whether to keep the second, once that is known."""
        self._at += 1 if better else -1
        self._votes += 1
        if self._at >= self.KEPT:
            return True
        return False if self._at <= self.LOST or self._votes >= self.MOST else None


class Contest:
    """The session of one bucket, which calls `ask` once so many batches came that another is worth opening.

    Given that by `challenge`, both run in turn, first one and then the other first, and each such four batches are a vote.
    `settled` is called with whether the challenger is to stay, and how many times quicker it is, and not called when the
    contest is closed before. A challenger that fails has lost: its batch is computed by the other. `session` is the one to
    go on with, `first` the one that was there.

    The challenger's 1st, 2nd, 4th, 8th... batch, and the one before it stays, are computed by both. Where `unlike` says how the
    second outputs differ from the first, the first session's are the answer, and the challenger has lost: also later, until
    `leave`, before which `first` must not be closed.
    """

    def __init__(
        self,
        session: Runner,
        ask: Callable[[], None],
        *,
        unlike: Callable[[Rows, Rows], str | None] = lambda wanted, given: None,
        batches: int = 16,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.first = self.session = session
        self._ask = ask
        self._unlike = unlike
        self._left = batches
        self._clock = clock
        self._lock = threading.Lock()
        self._challenger: Runner | None = None
        self._settled: Callable[[bool, float, str], None] = lambda kept, times, why: None
        self._walk, self._times, self._gains = RandomWalk(), [0.0, 0.0], list[float]()
        self._turn = self._runs = 0  # of the challenger's
        self._closed = False

    def challenge(self, challenger: Runner, settled: Callable[[bool, float, str], None]) -> bool:
        """Begin. False, with nothing taken, once it is closed."""
        with self._lock:
            if self._closed:
                return False
            self._challenger, self._settled = challenger, settled
            return True

    def run(self, inputs: Sequence[np.ndarray]) -> Rows:
        with self._lock:
            if self._challenger is not None:
                return self._in_turn(self._challenger, inputs)
            if self.session is not self.first:
                return self._watched(inputs)
            self._left -= 1
            if self._left == 0:
                self._ask()
            return self.session.run(inputs)

    def _in_turn(self, challenger: Runner, inputs: Sequence[np.ndarray]) -> Rows:
        """By one of the two, timed; with the lock held."""
        second = self._turn in (1, 2)
        begin = self._clock()
        try:
            outputs = (challenger if second else self.session).run(inputs)
        except Exception as error:  # whatever a backend raises
            if not second:
                raise
            wanted = self.first.run(inputs)  # raises where the rows are at fault, which says nothing of the challenger
            return self._lost(inputs, f"it failed: {error}", wanted)
        self._times[second] += self._clock() - begin
        if second and self._due() and (why := self._unlike(wanted := self.first.run(inputs), outputs)):
            return self._lost(inputs, f"it answers otherwise: {why}", wanted)
        self._turn = (self._turn + 1) % 4
        if self._turn == 0:
            gain = self._times[0] / max(self._times[1], 1e-9)
            self._gains.append(gain)
            self._times = [0.0, 0.0]
            kept = self._walk.vote(gain > WORTH_IT)
            if kept and (why := self._answers_otherwise(challenger, inputs, outputs)):
                return self._lost(inputs, why, outputs)
            if kept is not None:
                self._settle(kept=kept, why="")
        return outputs

    def _watched(self, inputs: Sequence[np.ndarray]) -> Rows:
        """By the session that stays, which the first one is there to compare with."""
        outputs = self.session.run(inputs)
        if self._due() and (why := self._unlike(wanted := self.first.run(inputs), outputs)):
            return self._lost(inputs, f"it answers otherwise: {why}", wanted)
        return outputs

    def _due(self) -> bool:
        """Whether the challenger's batch, one more, is to be computed by both."""
        self._runs += 1
        return self._runs & (self._runs - 1) == 0

    def _answers_otherwise(self, challenger: Runner, inputs: Sequence[np.ndarray], wanted: Rows) -> str | None:
        try:
            why = self._unlike(wanted, challenger.run(inputs))
        except Exception as error:  # noqa: BLE001 - whatever a backend raises
            return f"it failed: {error}"
        return why and f"it answers otherwise: {why}"

    def _lost(self, inputs: Sequence[np.ndarray], why: str, outputs: Rows | None = None) -> Rows:
        """The first session's answer, which goes on alone."""
        self.session = self.first
        self._settle(kept=False, why=why)
        return self.first.run(inputs) if outputs is None else outputs

    def _settle(self, *, kept: bool, why: str) -> None:
        challenger, self._challenger = self._challenger, None
        times = statistics.median(self._gains) if self._gains else 1.0
        if kept:
            assert challenger is not None, "it has just run"
            self.session = challenger  # until whoever is told has put it in this one's place
        self._settled(kept, times, why)

    def leave(self) -> Runner:
        """Compare no more; the session to go on with."""
        with self._lock:
            self.first = self.session
            return self.session

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.session.close()
            if self._challenger is not None:
                self._challenger.close()
                self._challenger = None
