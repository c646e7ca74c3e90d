"""One candidate of a plan on its way: prepared, held to parity, measured."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ...errors import BackendError
from ...specs import Precision
from ..artifact.agreement import METRICS, Array, right_share, top1_agreement
from ..artifact.confidence import chance
from ..artifact.known_answers import of_another
from ..artifact.lossy_parity import beyond_lossy, compare_lossy, compare_relative, lossy_gate, relative_rms
from ..artifact.parity import Gate, ParityRecord, compare, unusable_reference
from ..artifact.plan import Choice, Measurement
from ..backends import Backend
from ..base.calibration import Calibration
from ..base.config import GraphConfig
from ..base.session import Session, Target
from ..base.task import SINGLE_LABEL, Task
from .judging_data import JudgingData
from .measure import Samples
from .proof import wrong_at, wrong_on_rare
from .reference import Reference, run_judged
from .source import Source

PARITY_ROWS = 16
PARITY_BATCHES = (1, 2, 5)
# After so many images one is refused whose flips so few of those that keep to the gate would have: the others cost seconds. So
# many show that one computes as another that has passed, off from that by a share of the allowed error at most.
_FIRST_ROWS, _SURE, _ALIKE = 32, 1e-4, 0.1
_MEGABYTE = 1 << 20


@dataclass(eq=False)
class Candidate:
    """What it opened, what parity said, and its samples per bucket. A `status` ends it: "skipped", "failed" or "refused"."""

    backend: Backend
    target: Target
    choice: Choice
    calibration: Calibration | None = None
    session: Session | None = None
    parity: ParityRecord | None = None
    status: str = ""
    why: str = ""
    memory_mb: float | None = None
    samples: dict[int, Samples] = field(default_factory=dict)
    scores: tuple[Array, ...] | None = None  # of the real images, where it has passed on them
    far_behind: str = ""  # how far at the largest batch, where that ends its measurements
    hopeless: bool = False  # refused by the first images alone
    wrong_on_rare: str | None = None  # empty where it is right; None before it was asked
    lost: dict[int, tuple[str, str]] = field(default_factory=dict)  # status and why, of batch sizes at which it may not be used

    @property
    def lossy(self) -> bool:
        return self.target.precision.lossy

    @property
    def is_reference(self) -> bool:
        """Eager fp32 computes exactly what the module computes; it may always run, whatever parity can prove."""
        return self.backend.name == "eager" and not self.lossy

    @property
    def arithmetic(self) -> tuple[str, Precision]:
        """What decides its answers, whatever the batch size it is compiled for."""
        return self.choice.backend, self.choice.precision

    def prepare(self, source: Source, directory: Path, reference: Reference) -> None:
        """Write its files, open its session, and run a row; an error becomes its status. What it computes is judged by
        `passes`, if it would win."""
        before = psutil.Process().memory_info().rss
        try:
            self.choice = source.prepare(self.choice, self.target, directory, self.calibration)
            self.session = self.backend.open(directory, self.target, self.choice.files)
            self.session.run([value[:1] for value in reference.inputs])
        except (BackendError, OSError) as error:  # a full disk, too: what another candidate writes may fit
            self.end("failed", str(error))
            return
        self.memory_mb = max(0.0, (psutil.Process().memory_info().rss - before) / _MEGABYTE)

    def fixed(self, bucket: int, streams: int = 1) -> Candidate:
        """The same, compiled for one batch size alone, whose parts so many streams compute; not prepared yet."""
        return self._fresh(batch=bucket, streams=streams)

    def with_more_in_floats(self) -> Candidate | None:
        """The same for any batch, after int8 lost too much accuracy; None where no share is larger. Not prepared yet."""
        precision = self.choice.precision.with_more_in_floats
        return None if precision is None else self._fresh(batch=None, streams=1, precision=precision)

    def _fresh(self, **changes: Any) -> Candidate:
        target, choice = replace(self.target, **changes), replace(self.choice, **changes)
        return Candidate(self.backend, target, choice, self.calibration)

    def passes(self, reference: Reference, config: GraphConfig, proved: Candidate | None = None) -> bool:
        """Whether it may be used. Parity is asked once: a lossy one is judged on the real images where there are any; anything
        but the reference is refused when it does not pass. `proved` is one of the same arithmetic that has passed on them: what
        computes as that does on some needs no more."""
        if self.parity is None and not self.status:
            if proved is not None and config.budget is None and self._computes_as(proved, reference):
                assert proved.parity is not None
                shown = f"{proved.parity.why}; shown by {proved.choice}, whose scores of {_FIRST_ROWS} of them these are"
                self.parity, self.scores = replace(proved.parity, why=shown), proved.scores
                self.wrong_on_rare = proved.wrong_on_rare
            elif self.lossy and reference.images is not None:
                self._judge_on_images(reference, reference.images, config.budget)
            elif self.lossy and config.budget is not None:
                self._refuse(ParityRecord(status="failed", why="real images must show that it keeps to the budget: give some"))
            else:
                self._judge(reference, config)
            if self.lossy and not self.status:
                self._judge_on_known(reference)
        return not self.status

    def _judge_on_known(self, reference: Reference) -> None:
        """Refuse it where a server, which knows the model by its answers to some rows, would take it for another one: int8 that
        took its ranges from images may clip those rows."""
        if reference.known is None:
            return
        assert self.session is not None
        assert self.parity is not None, "it was judged before"
        rows, recorded = reference.known
        count, batch = len(rows[0]), self.target.batch or 1
        places: Array = np.arange(-(-count // batch) * batch).reshape(-1, batch) % count
        try:
            answers = [self.session.run([value[at] for value in rows])[reference.task.primary].copy() for at in places]
            why = of_another(recorded, np.concatenate(answers)[:count])
        except BackendError as error:
            why = str(error)
        if why is not None:
            self._refuse(replace(self.parity, status="failed", why=why))

    def _judge(self, reference: Reference, config: GraphConfig) -> None:
        assert self.session is not None
        batches = sorted({*PARITY_BATCHES, self.target.batch or 1, len(reference.inputs[0])})
        batches = [batch for batch in batches if batch <= len(reference.inputs[0])]
        try:
            actual = [self.session.run([value[:batch] for value in reference.inputs]) for batch in batches]
        except BackendError as error:
            self.end("failed", str(error))
            return
        expected = [[value[:batch] for value in reference.outputs] for batch in batches]
        wanted, given = ([np.concatenate(parts) for parts in zip(*runs, strict=True)] for runs in (expected, actual))
        check = compare_relative if self.lossy else compare
        self.parity = check(wanted, given, self._gate(reference, config), task=reference.task, batches=batches)
        places = np.concatenate([np.arange(batch) for batch in batches])
        if not (self.parity.passed or self.lossy) and reference.learn_noise(given, places):
            self.parity = check(wanted, given, self._gate(reference, config), task=reference.task, batches=batches)
        if not self.parity.passed and not self.is_reference:
            self._refuse(self.parity)

    def _gate(self, reference: Reference, config: GraphConfig) -> Gate:
        return Gate(tolerance=config.tolerance, noise=reference.noise)

    def end(self, status: str, why: str) -> None:
        """It may not be used; its memory is the others'."""
        self.status, self.why = status, why
        self.close()

    def _refuse(self, parity: ParityRecord) -> None:
        self.parity = parity
        self.end("refused", parity.why or "parity failed")

    def able_at(self, bucket: int) -> bool:
        """Whether it may still be used at that batch size."""
        return self.session is not None and not self.status and bucket not in self.lost and self.target.batch in (None, bucket)

    def right_at(self, bucket: int, reference: Reference, config: GraphConfig) -> bool:
        """Whether it computes what it should with so many rows; where it does not, it is lost for that batch size."""
        assert self.session is not None
        gate = self._gate(reference, config)
        if self.lossy:
            images = reference.images is not None
            gate = lossy_gate(self.target.precision.dtype) if images else replace(gate, tolerance=gate.relative_error)
        try:
            why = None if self.is_reference else self._wrong_at(bucket, reference, gate)
        except BackendError as error:
            self.lost[bucket] = ("failed", str(error))
        else:
            if why:
                self.lost[bucket] = ("refused", why)
        return bucket not in self.lost

    def _wrong_at(self, bucket: int, reference: Reference, gate: Gate) -> str | None:
        assert self.session is not None
        if why := wrong_at(self.session, reference, bucket, gate, lossy=self.lossy):
            return why
        if self.wrong_on_rare is None:
            rows = self.target.batch or PARITY_ROWS
            self.wrong_on_rare = wrong_on_rare(self.session, reference, gate, lossy=self.lossy, batch=rows) or ""
        return self.wrong_on_rare

    def _judge_on_images(self, reference: Reference, images: JudgingData, budget: float | None) -> None:
        assert self.session is not None
        assert images.scores is not None, "the reference computed them"
        gate = lossy_gate(self.target.precision.dtype, budget=budget)
        if budget is not None:
            gate = replace(gate, alpha=reference.share_of_doubt(self.arithmetic, gate.alpha))
        task, batches = reference.task, (*PARITY_BATCHES, PARITY_ROWS)
        for expected in images.scores:
            if why := unusable_reference(expected, 0.0):
                self._refuse(ParityRecord(status="failed", why=why, rows=len(expected), batches=batches))
                return
        try:
            few, rest = images.rows(slice(_FIRST_ROWS)), images.rows(slice(_FIRST_ROWS, None))
            scores = self._scores(few, task)
            if why := _hopeless(task, few, scores, gate):
                self.hopeless = True
                self._refuse(ParityRecord(status="failed", why=why, rows=len(scores[0]), batches=batches))
                return
            if len(rest.images[0]):
                scores = tuple(np.concatenate(pair) for pair in zip(scores, self._scores(rest, task), strict=True))
            lost = self._lost(reference)
            others = beyond_lossy(reference.outputs, self.session.run(reference.inputs), gate)
        except BackendError as error:
            self.end("failed", str(error))
            return
        records = [
            compare_lossy(
                expected, given, gate, head=task.heads[index], batches=batches,
                labels=images.labels if index == task.primary else None,
            )
            for index, expected, given in zip(task.judged, images.scores, scores, strict=True)
        ]  # fmt: skip
        first = task.judged.index(task.primary)
        self.parity = functools.reduce(ParityRecord.beside, [records[first], *records[:first], *records[first + 1 :]])
        if self.parity.passed and lost > (gate.accuracy_points if budget is None else budget):
            metric = METRICS[task.heads[task.primary].kind]
            why = f"{metric} falls by {lost:.2f} points on the images that set its ranges"
            self.parity = replace(self.parity, status="failed", why=why)
        if self.parity.passed and others:
            self.parity = replace(self.parity, status="failed", why=others)
        if not self.parity.passed:
            self._refuse(self.parity)
        else:
            self.scores = scores

    def _scores(self, images: JudgingData, task: Task) -> tuple[Array, ...]:
        """The outputs that the task has judged, for the images."""
        assert self.session is not None
        return run_judged(self.session, images.batches(self.target.batch or PARITY_ROWS), task)

    def _computes_as(self, proved: Candidate, reference: Reference) -> bool:
        """Whether its scores of some images are the other's, but for a fraction of what either may be off."""
        assert self.session is not None
        if proved.scores is None or reference.images is None:
            return False
        try:
            given = self._scores(reference.images.rows(slice(_FIRST_ROWS)), reference.task)
        except BackendError:  # which the whole judgement meets, too, and tells
            return False
        most = _ALIKE * lossy_gate(self.target.precision.dtype).rms
        return all(relative_rms(known[: len(own)], own) <= most for known, own in zip(proved.scores, given, strict=True))

    def _lost(self, reference: Reference) -> float:
        """Points of accuracy that int8 loses on the images that set its ranges; they count only where they speak against it."""
        images = reference.calibrating
        if images.scores is None or images.labels is None or self.calibration is None:
            return 0.0
        task = reference.task
        first, head = task.judged.index(task.primary), task.heads[task.primary]
        before, after = (
            right_share(head, found[first], images.labels) for found in (images.scores, self._scores(images, task))
        )
        return 100 * (before - after)

    def close(self) -> None:
        """Close its session, if it has one."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def outcome(self, bucket: int, winner: Candidate) -> Measurement:
        """Its line in the plan for a bucket that was measured."""
        samples = self.samples.get(bucket)
        status, why = self.lost.get(bucket, (self.status, self.why))
        if samples is None:
            return self.unmeasured(bucket, why or self.far_behind or f"batch {bucket} was not measured", status or "skipped")
        best = winner.samples[bucket].median_ms
        if self is not winner and not status:
            faster = samples.median_ms < best
            slower = f"takes {samples.median_ms / best:.2f} times as long as {winner.choice}"
            why = f"no clear gain over {winner.choice}" if faster else slower
        return replace(
            self.unmeasured(bucket, why, "won" if self is winner else status or "lost"),
            median_ms=samples.median_ms,
            spread_ms=samples.spread_ms,
            repetitions=len(samples.seconds),
        )

    def unmeasured(self, bucket: int, why: str, status: str) -> Measurement:
        """Its line in the plan for a bucket without a measurement."""
        return Measurement(
            choice=replace(self.choice, files=()),
            bucket=bucket,
            status=status,
            memory_mb=self.memory_mb,
            parity=self.parity,
            why=why,
        )


def _hopeless(task: Task, few: JudgingData, scores: tuple[Array, ...], gate: Gate) -> str | None:
    """Why scores of the first images refuse a candidate, whatever it makes of the others; None where they do not."""
    if task.heads[task.primary].kind != SINGLE_LABEL or gate.budget is not None:
        return None
    assert few.scores is not None
    first = task.judged.index(task.primary)
    agreed, rows = top1_agreement(few.scores[first], scores[first]), len(scores[first])
    least = gate.agreement if few.labels is None else gate.agreement_with_labels
    if agreed is None or chance(round((1 - agreed) * rows), rows, 1 - least) >= _SURE:
        return None
    return f"top-1 agrees on {agreed:.2%} of the first {rows} images, less than {least:.1%}"
