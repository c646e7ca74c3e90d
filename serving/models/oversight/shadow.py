"""A sample of what a model has answered is computed again in fp32: how often both agree is counted, and judged.

It never lies on a request's way: rows are copied after their batch is answered, and computed by one thread of low priority.
What comes while that is busy is left out, and counted.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....runtime.artifact.agreement import decisions, flat_scores
from ....runtime.artifact.confidence import lower_bound
from ....runtime.artifact.losses import losses
from ....runtime.artifact.lossy_parity import relative_rms
from ....runtime.artifact.parity import Gate, ParityRecord
from ....runtime.artifact.plan import Plan
from ....runtime.artifact.sequence import falls_below, interval
from ....runtime.base.memory import give_back_memory
from ....runtime.base.task import DENSE, EMBEDDING, MULTI_LABEL, RAW, SINGLE_LABEL, Head, Task
from ...batching.ticket import Rows, Runner

log = logging.getLogger("headrace.serving")

ALPHA = 0.05
"""The probability with which a plan is taken back that keeps to what was accepted, however long it serves; and that with which
the interval does not hold the true share."""
# Rows that wait for the thread: bytes of inputs and outputs.
_MOST_BYTES, _MOST_ROWS = 64 << 20, 256
# What judges starts anew after so many rows, so that a plan that has become worse does not live on what it was. The first few
# say nothing, as in the gate: one close call among them is as rare as alpha allows, and no reason.
_EPOCH, _LEAST_ROWS = 1000, Gate().least_images
_NICE = 19
# The least share of agreement by what an output is, where the gate has no share of rows of its own.
_GATE = Gate()
_LEAST = {
    SINGLE_LABEL: _GATE.agreement,
    MULTI_LABEL: _GATE.decision_agreement,
    EMBEDDING: 0.99,
    DENSE: 0.95,
    RAW: 0.99,
}


@dataclass(frozen=True)
class Agreement:
    """How a plan's answers agree with fp32's: of `compared` rows (of several labels: of the labels that either gives) so many
    `agreed`; `skipped` ones came while others were computed. `accepted` is the least share; `taken_back` says that the plan was
    below it, and serves no more."""

    accepted: float
    compared: int = 0
    agreed: int = 0
    skipped: int = 0
    taken_back: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """The shares of all answers that this leaves possible, at every moment at once, but for a probability of `ALPHA`."""
        return interval(self.agreed, self.compared, ALPHA)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        share = self.agreed / self.compared if self.compared else None
        return {
            "compared": self.compared, "agreed": self.agreed, "skipped": self.skipped, "share": share, "low": low, "high": high,
            "confidence": 1 - ALPHA, "accepted": self.accepted, "taken_back": self.taken_back,
        }  # fmt: skip


def accepted_share(plan: Plan, task: Task) -> float:
    """The least agreement of a plan that stays: what its gate asked for, less where a budget allows it, or, where it was
    accepted with less, the lowest that its images leave possible."""
    return min(
        (
            _accepted(item.parity, kind)
            for kind in _kinds(task)
            for item in plan.measurements
            if item.status == "won" and item.parity is not None and item.choice.precision.lossy
        ),
        default=min(_LEAST[kind] for kind in _kinds(task)),
    )


def _kinds(task: Task) -> set[str]:
    return {task.heads[index].kind for index in task.judged}


def _accepted(record: ParityRecord, kind: str) -> float:
    labeled = record.accuracy_drop is not None
    least = _GATE.agreement_with_labels if kind == SINGLE_LABEL and labeled else _LEAST[kind]
    if record.budget is not None:
        least = min(least, 1 - record.budget / 100)
    found = record.decision_agreement if kind == MULTI_LABEL else record.top1_agreement
    if kind not in (SINGLE_LABEL, MULTI_LABEL) or found is None or found >= least or not record.rows:
        return least
    return lower_bound(round(found * record.rows), record.rows, ALPHA)


@dataclass
class _Epoch:
    """Rows since the judging began anew. The chances of all epochs together are `ALPHA`."""

    number: int = 1
    compared: int = 0
    agreed: int = 0

    @property
    def alpha(self) -> float:
        return ALPHA * 6 / (math.pi * self.number) ** 2

    def add(self, agreed: int, compared: int, accepted: float) -> bool:
        """Count some, and whether there is less agreement than was accepted."""
        self.agreed, self.compared = self.agreed + agreed, self.compared + compared
        below = self.compared >= _LEAST_ROWS and falls_below(self.agreed, self.compared, accepted, self.alpha)
        if not below and self.compared >= _EPOCH:
            self.number, self.agreed, self.compared = self.number + 1, 0, 0
        return below


@dataclass
class _Sample:
    inputs: Rows
    outputs: Rows
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(array.nbytes for array in (*self.inputs, *self.outputs))


class Shadow:
    """Compares the share `rate` of the rows of a model with what `open_reference` computes of them, from `start` to `stop`.

    A batcher's `watch` calls `look`. `agreement` is read at any time. `take_back` is called once, in the shadow's thread, with
    what was found, when that is below what was accepted; the agreement says so from then on.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        open_reference: Callable[[], Runner],
        *,
        rate: float,
        agreement: Agreement,
        take_back: Callable[[Agreement], None],
        seed: int | None = None,
    ) -> None:
        self.agreement = agreement
        self._name = name
        self._task = task
        self._open = open_reference
        self._rate = rate
        self._take_back = take_back
        self._random = random.Random(seed)  # noqa: S311 - it draws a sample
        self._lock = threading.Lock()
        self._ahead = self._gap()
        self._waiting: queue.SimpleQueue[_Sample | None] = queue.SimpleQueue()
        self._held = 0  # bytes of what waits
        self._epoch = _Epoch()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"headrace-{name}-shadow", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for it."""
        self._stopped.set()
        self._waiting.put(None)

    def look(self, inputs: Sequence[np.ndarray], outputs: Rows, rows: int) -> None:
        """See a batch that is answered. Most cost a subtraction."""
        with self._lock:
            chosen = []
            while self._ahead < rows:
                chosen.append(self._ahead)
                self._ahead += 1 + self._gap()
            self._ahead -= rows
        if not chosen or self._stopped.is_set():
            return
        size = sum(array[:1].nbytes for array in (*inputs, *outputs))
        for row in chosen:
            with self._lock:
                full = self._held + size > _MOST_BYTES or self._waiting.qsize() >= _MOST_ROWS
                if full:
                    self.agreement = replace(self.agreement, skipped=self.agreement.skipped + 1)
                    continue
                self._held += size
            inside = slice(row, row + 1)
            self._waiting.put(_Sample([array[inside].copy() for array in inputs], [array[inside].copy() for array in outputs]))

    def _gap(self) -> int:
        """How many rows are passed over until the next: geometric, as if each were drawn by itself."""
        if self._rate >= 1:
            return 0
        return int(math.log(1 - self._random.random()) / math.log1p(-self._rate))

    def _work(self) -> None:
        _be_nice()
        reference: Runner | None = None
        try:
            while (sample := self._waiting.get()) is not None and not self._stopped.is_set():
                with self._lock:
                    self._held -= sample.size
                reference = reference or self._open()
                found = self._compared(sample, reference.run(sample.inputs))
                if found is not None and self._count(*found):
                    self._take_back(self.agreement)
                    return
        except Exception as error:  # whatever a backend raises, what serves goes on
            log.warning("%s: answers are not compared with fp32 any more: %s", self._name, error, exc_info=error)
        finally:
            self._stopped.set()
            if reference is not None:
                reference.close()
                give_back_memory()

    def _count(self, agreed: int, compared: int) -> bool:
        with self._lock:
            below = self._epoch.add(agreed, compared, self.agreement.accepted)
            self.agreement = replace(
                self.agreement,
                compared=self.agreement.compared + compared,
                agreed=self.agreement.agreed + agreed,
                taken_back=below,
            )
            return below

    def _compared(self, sample: _Sample, wanted: Rows) -> tuple[int, int] | None:
        """How many agree, of how many; None where fp32 itself has no answer."""
        judged = self._task.judged
        heads = [(self._task.heads[index], wanted[index], sample.outputs[index]) for index in judged]
        if not all(np.isfinite(reference).all() for _, reference, _ in heads if reference.dtype.kind == "f"):
            return None
        if len(heads) == 1 and heads[0][0].kind == MULTI_LABEL:
            return _labels(*heads[0])
        return int(all(_agrees(*each) for each in heads)), 1


def _labels(head: Head, reference: np.ndarray, given: np.ndarray) -> tuple[int, int] | None:
    """Of the labels that either gives, those that both give; where neither gives any, they agree in that."""
    if not np.isfinite(given).all():
        return 0, 1
    one, other = (decisions(head, values) for values in (reference, given))
    either = int((one | other).sum())
    return (int((one & other).sum()), either) if either else (1, 1)


def _agrees(head: Head, reference: np.ndarray, given: np.ndarray) -> bool:
    reference, given = flat_scores(reference), flat_scores(given)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        return False
    found = losses(head, reference, given, None, cosine=_GATE.cosine, places=_GATE.place_agreement)
    return found.lost == 0 if found is not None else relative_rms(reference, given) <= _GATE.rms


def _be_nice() -> None:
    """Let the threads that answer have the processors before this one."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
