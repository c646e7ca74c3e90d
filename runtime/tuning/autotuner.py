"""Build every candidate, hold it to parity, measure it per batch bucket, and keep the winners: a Plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...errors import BackendError, ParityError
from .. import backends
from ..artifact.parity import Array, unusable_reference
from ..artifact.plan import Choice, Plan
from ..base.calibration import Calibration
from ..base.config import GraphConfig
from ..base.fingerprint import fingerprint
from ..base.session import Target
from .candidate import PARITY_BATCHES, PARITY_ROWS, Trial
from .measure import measure
from .reference import Images, Reference
from .source import Source

Progress = Callable[[float, str], None]

# What multiplies a candidate's time beside others: what may lose something must win clearly, yet no choice may be left far
# behind the best.
_LOSSY_HANDICAP = 1.03
_FIXED_HANDICAP = 1.02  # a session for one batch size alone costs a set of weights of its own,
_FIXED_HOPE = 1.5  # and is not tried where its sibling for any batch takes so many times the best,
_STREAMS_HOPE = 1.2  # nor in streams where one stream does
_RELIEF_SHARE = 0.25  # of max_tuning_seconds, for int8 with layers in floats; other candidates need the rest
_LONG_SECONDS = 20.0
_ON_TENSOR_CORES = ("bf16", "fp8", "int8+bf16", "int8", "fp16", "fp32")  # fp16 is no faster than bf16, and passes less often
_LEAST_CALIBRATION, _MOST_CALIBRATION, _LEAST_JUDGED = 16, 128, 64  # images


def tune(
    source: Source,
    config: GraphConfig,
    *,
    directory: Path,
    device: str,
    images: Sequence[Array] = (),
    labels: Array | None = None,
    scores: Array | None = None,
    calibration: Sequence[Array] = (),
    progress: Progress | None = None,
    keep: Plan | None = None,
) -> Plan:
    """Choose per bucket that `config` plans among the candidates, whose files are written into `directory`.

    Lossy precisions are tried under "auto" only when `images` (one array per input) are given; `scores` [n, classes] are the
    reference's for them, if known. Ranges for int8 come from `calibration` images, else from a quarter of `images`,
    which then judge nothing. With `keep`, nothing is measured: the plan's own choices are prepared for changed weights
    and held to parity again. Raises BackendError when a pinned backend or precision cannot run here, ParityError when
    every candidate was refused.
    """
    tell = progress or (lambda fraction, text: None)
    ranges, calibrating, images, labels, scores = _split(images, labels, scores, calibration, config)
    trials = _trials(source, config, device, ranges, have_images=bool(images), keep=keep)
    tell(0.0, "running the model as the reference")
    rows = max(*PARITY_BATCHES, min(max(config.planned(device)), PARITY_ROWS))
    reference = source.reference(
        Target(device=device, threads=config.threads),
        rows=rows,
        images=images,
        labels=labels,
        scores=scores,
        seconds=config.seconds(device) / 4,
    )
    reference = replace(reference, calibrating=calibrating)
    deadline = time.monotonic() + config.seconds(device)
    if why := unusable_reference(reference.outputs[reference.primary], reference.noise[reference.primary]):
        for trial in trials:
            if not trial.is_reference and not trial.status:
                trial.status, trial.why = "refused", why  # nothing could be proved about them, so nothing is built
    try:
        for index, trial in enumerate(trials):
            tell(0.1 + 0.5 * index / len(trials), f"preparing {trial.choice}")
            if not trial.status and (why := _no_time(trial, trials, config, deadline, kept=keep is not None)):
                trial.status, trial.why = "skipped", why
            if not trial.status:
                trial.prepare(source, directory, reference, config)
        if not any(trial.session is not None and not trial.status for trial in trials):
            raise _nothing_left(trials, config)
        if keep is not None:
            return _kept(keep, trials, reference)
        return _Race(source, config, directory, device, reference, trials, deadline, tell).run()
    finally:
        for trial in trials:
            trial.close()


def _split(
    images: Sequence[Array], labels: Array | None, scores: Array | None, calibration: Sequence[Array], config: GraphConfig
) -> tuple[Calibration | str, Images | None, Sequence[Array], Array | None, Array | None]:
    """What int8 takes its ranges from, or why it cannot; the same with their scores, if known; what is left to judge by.

    An image that has set the ranges must not judge what they did to it.
    """
    if calibration:
        return Calibration(list(calibration)), None, images, labels, scores
    count = len(images[0]) if images else 0
    taken = min(_MOST_CALIBRATION, count // 4, count - _LEAST_JUDGED)
    if config.precision not in ("auto", "int8"):
        return "int8 was not asked for", None, images, labels, scores
    if taken < _LEAST_CALIBRATION:
        least = _LEAST_JUDGED + _LEAST_CALIBRATION
        why = f"int8 takes its ranges from real images: give calibration images, or at least {least} images (got {count})"
        return why, None, images, labels, scores
    order = np.random.default_rng(1).permutation(count)
    judging, taking = np.sort(order[taken:]), order[:taken]
    rows = [value[taking] for value in images]
    return (
        Calibration(rows),
        None if scores is None or labels is None else Images(rows, scores[taking], labels[taking]),
        [value[judging] for value in images],
        None if labels is None else labels[judging],
        None if scores is None else scores[judging],
    )


def _trials(
    source: Source,
    config: GraphConfig,
    device: str,
    ranges: Calibration | str,
    *,
    have_images: bool,
    keep: Plan | None,
) -> list[Trial]:
    choices = _choices(config, device, have_images) if keep is None else sorted(set(keep.choices.values()), key=str)
    trials = []
    for choice in choices:
        target = choice.target(device, config.threads)
        trial = Trial(backends.get(choice.backend), target, replace(choice, files=()))
        why = trial.backend.supports(target)
        if not why and choice.precision.startswith("int8"):
            if isinstance(ranges, str):
                why = ranges
            else:
                trial.calibration = ranges
        if not why and source.graph_for(trial.backend, None) is None:
            why = f"{choice.backend} needs the model itself, which an artifact does not hold"
        if not why and choice.variant:
            why = f"{choice} was fitted to other weights"
        if why:
            trial.status, trial.why = "skipped", why
        trials.append(trial)
    if all(trial.status for trial in trials):
        reasons = "; ".join(sorted({trial.why for trial in trials})) or f"none computes in {config.precision}"
        raise BackendError(f"no backend here can run {config.precision} on {device}: {reasons}")
    return sorted(trials, key=_urgency)


def _urgency(trial: Trial) -> tuple[float, ...]:
    """What is prepared first, while there is time: what is cheap; of what takes long on a GPU, what tensor cores compute."""
    seconds = trial.backend.preparation_seconds
    if trial.target.device == "cuda" and seconds >= _LONG_SECONDS:
        return _LONG_SECONDS, _ON_TENSOR_CORES.index(trial.target.precision), seconds
    return seconds, trial.lossy


def _choices(config: GraphConfig, device: str, have_images: bool) -> list[Choice]:
    for_device = [name for name, backend in backends.discover().items() if device in backend.devices]
    names = [config.backend] if config.backend else for_device
    precisions = _precisions(config, have_images)
    found = [
        Choice(backend=name, precision=precision)
        for name in names
        for precision in precisions
        if precision in backends.get(name).precisions
    ]
    if config.backend and not found:
        able = ", ".join(backends.get(config.backend).precisions)
        raise BackendError(f"{config.backend} does not compute in {config.precision}; it computes in {able}")
    return found


def _precisions(config: GraphConfig, have_images: bool) -> tuple[str, ...]:
    if config.precision == "auto":
        return ("fp32", "bf16", "fp16", "fp8", "int8", "int8+bf16") if have_images else ("fp32",)
    return ("int8", "int8+bf16") if config.precision == "int8" else (config.precision,)


def _no_time(trial: Trial, trials: list[Trial], config: GraphConfig, deadline: float, *, kept: bool) -> str | None:
    """Why the time left does not allow to build it; None when it does, or when it must be built anyway."""
    needed = trial.backend.preparation_seconds
    others = [other for other in trials if not other.is_reference]
    if trial.is_reference:  # it is built when nothing else may run
        enough = any(other.session is not None and not other.status for other in others)
    else:  # it alone is not enough: one candidate that may be faster is always tried
        enough = any(other.session is not None or other.status in ("failed", "refused") for other in others)
    if not enough or kept or config.backend or time.monotonic() + needed <= deadline:
        return None
    return f"takes about {needed:.0f} s to prepare, more than max_tuning_seconds={config.seconds(trial.target.device):g} leaves"


class _Race:
    """Who is fastest at which batch size. Candidates that come up on the way (a session for one batch size alone, int8 with
    more layers in floats) join `trials`."""

    def __init__(
        self,
        source: Source,
        config: GraphConfig,
        directory: Path,
        device: str,
        reference: Reference,
        trials: list[Trial],
        deadline: float,
        tell: Progress,
    ) -> None:
        self.source, self.config, self.directory, self.device = source, config, directory, device
        self.reference, self.trials, self.deadline, self.tell = reference, trials, deadline, tell
        self.seconds_on_relief = 0.0

    def run(self) -> Plan:
        """Measure the buckets, the ends first: they tell most if time runs out."""
        buckets = self.config.planned(self.device)
        order = [buckets[0], *reversed(buckets[1:])]
        winners: dict[int, Trial] = {}
        for index, bucket in enumerate(order):
            left = self.deadline - time.monotonic()
            if index and left <= 0:
                continue
            self.tell(0.6 + 0.4 * index / len(order), f"measuring batch {bucket}")
            self._measure(self._able(bucket), bucket, max(0.0, left) / (len(order) - index) / 2)
            self._try_fixed(bucket)
            winner = self._winner(bucket)
            if winner is None:
                raise _nothing_left(self.trials, self.config)
            winners[bucket] = winner
        self.tell(1.0, "planned")
        return self._plan(winners)

    def _able(self, bucket: int) -> list[Trial]:
        return [
            trial
            for trial in self.trials
            if trial.session is not None and not trial.status and trial.target.batch in (None, bucket)
        ]

    def _measure(self, trials: Sequence[Trial], bucket: int, seconds: float) -> None:
        rows = self.reference.inputs
        repeated = -(-bucket // len(rows[0]))
        inputs = [np.concatenate([value] * repeated)[:bucket] for value in rows]
        sessions = [trial.session for trial in trials if trial.session is not None]
        for trial, samples in zip(trials, measure(sessions, inputs, seconds=seconds), strict=True):
            trial.samples[bucket] = samples

    def _join(self, trials: Sequence[Trial], bucket: int) -> None:
        """Prepare candidates that come up late, and measure them beside the fastest so far."""
        for trial in trials:
            self.tell(0.9, f"preparing {trial.choice} for batch {bucket}")
            trial.prepare(self.source, self.directory, self.reference, self.config)
        self.trials += trials
        ready = [trial for trial in trials if trial.session is not None and not trial.status]
        if ready:
            able = [trial for trial in self._able(bucket) if bucket in trial.samples]
            best = min(able, key=lambda trial: trial.samples[bucket].median_ms, default=None)
            seconds = max(0.0, self.deadline - time.monotonic()) / 4
            self._measure([*([best] if best else []), *ready], bucket, seconds)

    def _try_fixed(self, bucket: int) -> None:
        able = [trial for trial in self._able(bucket) if bucket in trial.samples]
        best = min(trial.samples[bucket].median_ms for trial in able)
        hopeful = [
            trial
            for trial in able
            if trial.backend.fixed_batch
            and trial.target.batch is None
            and trial.samples[bucket].median_ms <= _FIXED_HOPE * best
        ]
        if hopeful and (time.monotonic() < self.deadline):
            self._join([trial.fixed(bucket) for trial in hopeful], bucket)
            self._try_streams(bucket)

    def _try_streams(self, bucket: int) -> None:
        fixed = [trial for trial in self._able(bucket) if bucket in trial.samples and trial.target.batch]
        streams = _streams(bucket, Target(threads=self.config.threads).thread_count)
        best = min((trial.samples[bucket].median_ms for trial in fixed), default=0.0)
        hopeful = [
            trial for trial in fixed if trial.backend.streams and trial.samples[bucket].median_ms <= _STREAMS_HOPE * best
        ]
        if streams > 1 and hopeful and time.monotonic() < self.deadline:
            self._join([trial.fixed(bucket, streams) for trial in hopeful], bucket)

    def _winner(self, bucket: int) -> Trial | None:
        """The fastest that may be used, with handicaps; None when none may."""
        while able := [trial for trial in self._able(bucket) if bucket in trial.samples]:
            first = min(able, key=lambda trial: _handicapped_ms(trial, bucket))
            if first.passes_gate(self.reference):
                return first
            if first.status == "refused":
                self._refuse_siblings(first)
                self._relieve(first, bucket)
        return None

    def _refuse_siblings(self, refused: Trial) -> None:
        """Compiled for another batch size, the same arithmetic is no more accurate; only a pass must be shown by each."""
        for trial in self.trials:
            if not trial.status and trial.arithmetic == refused.arithmetic:
                trial.status, trial.why, trial.parity = refused.status, refused.why, refused.parity

    def _relieve(self, refused: Trial, bucket: int) -> None:
        """Let int8 try again with more layers in floats while that has its time; beyond it only where int8 was asked for and
        nothing else is left."""
        relieved = refused.relieved()
        if relieved is None or relieved.arithmetic in {trial.arithmetic for trial in self.trials}:
            return
        left = [trial for trial in self.trials if trial.session is not None and not trial.status]
        begin = time.monotonic()
        within = self.seconds_on_relief < _RELIEF_SHARE * self.config.seconds(self.device) and begin < self.deadline
        if within or (self.config.precision == "int8" and not left):
            self._join([relieved, *([relieved.fixed(bucket, refused.target.streams)] if refused.target.batch else [])], bucket)
            self.seconds_on_relief += time.monotonic() - begin

    def _plan(self, winners: dict[int, Trial]) -> Plan:
        measured = sorted(winners)
        measurements = [
            trial.outcome(bucket, winners[bucket])
            for bucket in measured
            for trial in self.trials
            if trial.target.batch in (None, bucket)
        ]
        choices = {bucket: trial.choice for bucket, trial in winners.items()}
        for bucket in set(self.config.planned(self.device)) - set(measured):
            nearest = min(measured, key=lambda known: abs(known - bucket))
            choice = winners[nearest].choice
            streams = choice.streams if bucket % choice.streams == 0 else 1
            choices[bucket] = replace(choice, batch=bucket if choice.batch else None, streams=streams)
            why = f"max_tuning_seconds={self.config.seconds(self.device):g} was used up; batch {nearest} decides"
            measurements += [
                trial.unmeasured(bucket, trial.why or why, trial.status or "skipped")
                for trial in self.trials
                if trial.target.batch is None
            ]
        return Plan(
            fingerprint=fingerprint(),
            choices=choices,
            device=self.device,
            threads=Target(threads=self.config.threads).thread_count,
            measurements=tuple(sorted(measurements, key=lambda item: (item.bucket, item.candidate))),
        )


def _streams(bucket: int, threads: int) -> int:
    """As many as there are threads, or the next fewer that divide the batch."""
    return next(count for count in range(min(bucket, threads), 0, -1) if bucket % count == 0)


def _handicapped_ms(trial: Trial, bucket: int) -> float:
    handicap = (_LOSSY_HANDICAP if trial.lossy else 1.0) * (_FIXED_HANDICAP if trial.target.batch else 1.0)
    return trial.samples[bucket].median_ms * handicap


def _kept(keep: Plan, trials: list[Trial], reference: Reference) -> Plan:
    """The plan with fresh files and parity; a choice that no longer passes is an error, for the caller to tune anew."""
    if [trial for trial in trials if not trial.passes_gate(reference)]:
        raise ParityError("; ".join(f"{trial.choice}: {trial.why}" for trial in trials if trial.status))
    fresh = {replace(trial.choice, files=()): trial for trial in trials}
    choices = {bucket: fresh[replace(choice, files=())].choice for bucket, choice in keep.choices.items()}
    parity = {str(trial.choice): trial.parity for trial in trials}
    records = [replace(item, parity=parity[item.candidate]) if item.candidate in parity else item for item in keep.measurements]
    return replace(keep, choices=choices, measurements=tuple(records))


def _nothing_left(trials: list[Trial], config: GraphConfig) -> BackendError | ParityError:
    reasons = "\n".join(f"  {trial.choice}: {trial.why}" for trial in trials)
    if any(trial.status == "refused" for trial in trials):
        return ParityError(f"no candidate for precision={config.precision!r} agrees with eager:\n{reasons}")
    return BackendError(f"no candidate could be built:\n{reasons}")
