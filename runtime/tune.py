"""Build every candidate, hold it to parity, measure it per batch bucket, and keep the winners: a Plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..errors import BackendError, ParityError
from . import backends
from .backends import Backend
from .capture import CapturedGraph
from .config import GraphConfig
from .fingerprint import fingerprint
from .measure import Samples, measure
from .parity import Array, Gate, ParityRecord, compare, compare_lossy, compare_relative, unusable_reference
from .plan import Choice, Measurement, Plan
from .reference import Reference, make_reference
from .session import Session, Target

Progress = Callable[[float, str], None]

_CLEAR_MARGIN = 0.95  # of the best lossless time: a lossy winner must be faster than that
_PARITY_ROWS = 16
_PARITY_BATCHES = (1, 2, 5)
_LOSSLESS = "fp32"


@dataclass
class _Trial:
    """One candidate on its way: what it opened, what parity said, and its samples per bucket."""

    backend: Backend
    target: Target
    choice: Choice
    session: Session | None = None
    parity: ParityRecord | None = None
    status: str = ""
    why: str = ""
    samples: dict[int, Samples] = field(default_factory=dict)

    @property
    def lossy(self) -> bool:
        return self.target.precision != _LOSSLESS

    @property
    def is_reference(self) -> bool:
        """Eager fp32 computes exactly what the module computes; it may always run, whatever parity can prove."""
        return self.backend.name == "eager" and not self.lossy


def tune(
    captured: CapturedGraph,
    optimised: CapturedGraph,
    config: GraphConfig,
    *,
    directory: Path,
    device: str,
    images: Sequence[Array] = (),
    labels: Array | None = None,
    scores: Array | None = None,
    progress: Progress | None = None,
    keep: Plan | None = None,
) -> Plan:
    """Choose per bucket that `config` plans among the candidates, whose files are written into `directory`.

    `captured` is the reference and what eager runs; every other backend gets `optimised`. Lossy precisions are tried under
    "auto" only when `images` (one array per input) are given; `scores` [n, classes] are eager's for them, if known.
    With `keep`, nothing is measured: the plan's own choices are prepared for changed weights and held to parity again.
    Raises BackendError when a pinned backend or precision cannot run here, ParityError when every candidate was refused.
    """
    tell = progress or (lambda fraction, text: None)
    trials = _trials(config, device, bool(images), keep)
    tell(0.0, "running eager as the reference")
    rows = max(*_PARITY_BATCHES, min(max(config.planned), _PARITY_ROWS))
    base = Target(device=device, threads=config.threads)
    reference = make_reference(
        captured, base, rows=rows, images=images, labels=labels, scores=scores, seconds=config.max_tuning_seconds / 4
    )
    deadline = time.monotonic() + config.max_tuning_seconds
    if why := unusable_reference(reference.outputs[reference.primary], reference.noise[reference.primary]):
        for trial in trials:
            if not trial.is_reference and not trial.status:
                trial.status, trial.why = "refused", why  # nothing could be proved about them, so nothing is built
    try:
        for index, trial in enumerate(trials):
            tell(0.1 + 0.5 * index / len(trials), f"preparing {trial.choice}")
            _prepare(
                trial, trials, captured if trial.backend.name == "eager" else optimised, directory, config, deadline, bool(keep)
            )
            if trial.session is not None:
                _judge(trial, reference, config)
        able = [trial for trial in trials if trial.session is not None and not trial.status]
        if not able:
            raise _nothing_left(trials, config)
        if keep is not None:
            return _kept(keep, trials, reference)
        _measure_buckets(able, config.planned, reference.inputs, deadline, tell)
        tell(1.0, "holding the fastest to the gate")
        winners = {bucket: _winner(able, bucket, reference) for bucket in able[0].samples}
        if None in winners.values():
            raise _nothing_left(trials, config)
    finally:
        for trial in trials:
            if trial.session is not None:
                trial.session.close()
    return _plan(trials, {bucket: winner for bucket, winner in winners.items() if winner is not None}, config, device)


def _trials(config: GraphConfig, device: str, have_images: bool, keep: Plan | None) -> list[_Trial]:
    if keep is not None:
        wanted = sorted({(choice.backend, choice.precision) for choice in keep.choices.values()})
    else:
        names = [config.backend] if config.backend else list(backends.discover())
        precisions = _precisions(config, have_images)
        wanted = [(name, precision) for name in names for precision in precisions if precision in backends.get(name).precisions]
        if config.backend and not wanted:
            able = ", ".join(backends.get(config.backend).precisions)
            raise BackendError(f"{config.backend} does not compute in {config.precision}; it computes in {able}")
    trials = []
    for name, precision in wanted:
        target = Target(device=device, precision=precision, threads=config.threads)
        trial = _Trial(backends.get(name), target, Choice(backend=name, precision=precision))
        if why := trial.backend.supports(target):
            if config.backend:
                raise BackendError(why)
            trial.status, trial.why = "skipped", why
        trials.append(trial)
    if all(trial.status for trial in trials):
        reasons = "; ".join(sorted({trial.why for trial in trials})) or f"none computes in {config.precision}"
        raise BackendError(f"no backend here can run {config.precision} on {device}: {reasons}")
    return sorted(trials, key=lambda trial: (trial.backend.preparation_seconds, trial.lossy))


def _precisions(config: GraphConfig, have_images: bool) -> tuple[str, ...]:
    if config.precision == "auto":
        return ("fp32", "bf16", "fp16") if have_images else ("fp32",)
    return (config.precision,)


def _prepare(
    trial: _Trial, trials: list[_Trial], graph: CapturedGraph, directory: Path, config: GraphConfig, deadline: float, kept: bool
) -> None:
    if trial.status:
        return
    needed = trial.backend.preparation_seconds
    others = [other for other in trials if not other.is_reference]
    if trial.is_reference:  # it is built when nothing else may run
        enough = any(other.session is not None and not other.status for other in others)
    else:  # it alone is not enough: one candidate that may be faster is always tried
        enough = any(other.session is not None or other.status in ("failed", "refused") for other in others)
    if enough and not (kept or config.backend) and time.monotonic() + needed > deadline:
        trial.status = "skipped"
        trial.why = f"takes about {needed:.0f} s to prepare, more than max_tuning_seconds={config.max_tuning_seconds:g} leaves"
        return
    try:
        files = trial.backend.prepare(graph, trial.target, directory)
        trial.choice = replace(trial.choice, files=tuple(files))
        trial.session = trial.backend.open(directory, trial.target, files)
    except BackendError as error:
        trial.status, trial.why = "failed", str(error)


def _judge(trial: _Trial, reference: Reference, config: GraphConfig) -> None:
    """Hold the candidate to parity; anything but the reference is refused when it does not pass.

    A lossy one with real images to be judged on is only run here: `_passes_gate` judges those that would win.
    """
    assert trial.session is not None
    batches = sorted({*_PARITY_BATCHES, len(reference.inputs[0])})
    gate = Gate(tolerance=config.tolerance, noise=reference.noise)
    try:
        actual = [trial.session.run([value[:batch] for value in reference.inputs]) for batch in batches]
    except BackendError as error:
        trial.status, trial.why = "failed", str(error)
        return
    if trial.lossy and reference.images is not None:
        return
    expected = [[value[:batch] for value in reference.outputs] for batch in batches]
    wanted, given = ([np.concatenate(parts) for parts in zip(*runs, strict=True)] for runs in (expected, actual))
    check = compare_relative if trial.lossy else compare
    trial.parity = check(wanted, given, gate, primary=reference.primary, batches=batches)
    if not trial.parity.passed and not trial.is_reference:
        trial.status, trial.why = "refused", trial.parity.why or "parity failed"


def _passes_gate(trial: _Trial, reference: Reference) -> bool:
    """Whether a candidate may be used: a lossy one is judged on the real images, once."""
    if trial.lossy and trial.parity is None and not trial.status and reference.images is not None:
        assert trial.session is not None
        images, batches = reference.images, (*_PARITY_BATCHES, _PARITY_ROWS)
        if why := unusable_reference(images.scores, 0.0):
            trial.parity = ParityRecord(status="failed", why=why, rows=len(images.scores), batches=batches)
        else:
            try:
                scores = _scores(trial.session, reference)
            except BackendError as error:
                trial.status, trial.why = "failed", str(error)
                return False
            trial.parity = compare_lossy(images.scores, scores, Gate(), labels=images.labels, batches=batches)
        if not trial.parity.passed:
            trial.status, trial.why = "refused", trial.parity.why or "parity failed"
    return not trial.status


def _scores(session: Session, reference: Reference) -> Array:
    assert reference.images is not None
    inputs = reference.images.inputs
    starts = range(0, len(inputs[0]), _PARITY_ROWS)
    return np.concatenate(
        [session.run([value[at : at + _PARITY_ROWS] for value in inputs])[reference.primary] for at in starts]
    )


def _measure_buckets(
    able: list[_Trial], buckets: Sequence[int], rows: Sequence[Array], deadline: float, tell: Progress
) -> None:
    """The ends first: they tell most if time runs out. One candidate alone is measured too, so that the plan has its time."""
    order = [buckets[0], *reversed(buckets[1:])]
    for index, bucket in enumerate(order):
        left = deadline - time.monotonic()
        if index and left <= 0:
            continue
        tell(0.6 + 0.4 * index / len(order), f"measuring batch {bucket}")
        repeated = -(-bucket // len(rows[0]))
        inputs = [np.concatenate([value] * repeated)[:bucket] for value in rows]
        sessions = [trial.session for trial in able if trial.session is not None]
        for trial, samples in zip(able, measure(sessions, inputs, seconds=max(0.0, left) / (len(order) - index)), strict=True):
            trial.samples[bucket] = samples


def _winner(able: list[_Trial], bucket: int, reference: Reference) -> _Trial | None:
    """The fastest that may be used; a lossy one must be clearly faster than the best lossless one. None when none may."""
    ranked = sorted(able, key=lambda trial: trial.samples[bucket].median_ms)
    lossless = next((trial for trial in ranked if not trial.lossy), None)
    for trial in ranked:
        if lossless is not None and trial.samples[bucket].median_ms >= _CLEAR_MARGIN * lossless.samples[bucket].median_ms:
            return lossless
        if _passes_gate(trial, reference):
            return trial
    return lossless


def _plan(trials: list[_Trial], winners: dict[int, _Trial], config: GraphConfig, device: str) -> Plan:
    measured = sorted(winners)
    measurements = [_outcome(trial, bucket, winners[bucket]) for bucket in measured for trial in trials]
    for bucket in set(config.planned) - set(measured):
        nearest = min(measured, key=lambda known: abs(known - bucket))
        winners[bucket] = winners[nearest]
        why = f"max_tuning_seconds={config.max_tuning_seconds:g} was used up; batch {nearest} decides"
        measurements += [_unmeasured(trial, bucket, trial.why or why, trial.status or "skipped") for trial in trials]
    return Plan(
        fingerprint=fingerprint(),
        choices={bucket: trial.choice for bucket, trial in winners.items()},
        device=device,
        threads=Target(threads=config.threads).thread_count,
        measurements=tuple(sorted(measurements, key=lambda item: (item.bucket, item.backend, item.precision))),
    )


def _outcome(trial: _Trial, bucket: int, winner: _Trial) -> Measurement:
    samples = trial.samples.get(bucket)
    if samples is None:
        return _unmeasured(trial, bucket, trial.why, trial.status)
    best = winner.samples[bucket].median_ms
    why = trial.why
    if trial is not winner and not trial.status:
        faster = samples.median_ms < best
        slower = f"takes {samples.median_ms / best:.2f} times as long as {winner.choice}"
        why = f"no clear gain over lossless {winner.choice}" if faster else slower
    return Measurement(
        backend=trial.choice.backend,
        precision=trial.choice.precision,
        bucket=bucket,
        status="won" if trial is winner else trial.status or "lost",
        median_ms=samples.median_ms,
        spread_ms=samples.spread_ms,
        repetitions=len(samples.seconds),
        parity=trial.parity,
        why=why,
    )


def _unmeasured(trial: _Trial, bucket: int, why: str, status: str) -> Measurement:
    backend, precision = trial.choice.backend, trial.choice.precision
    return Measurement(backend=backend, precision=precision, bucket=bucket, status=status, parity=trial.parity, why=why)


def _kept(keep: Plan, trials: list[_Trial], reference: Reference) -> Plan:
    """The plan with fresh files and parity; a choice that no longer passes is an error, for the caller to tune anew."""
    if [trial for trial in trials if not _passes_gate(trial, reference)]:
        raise ParityError("; ".join(f"{trial.choice}: {trial.why}" for trial in trials if trial.status))
    known = {(trial.choice.backend, trial.choice.precision): trial for trial in trials}
    choices = {bucket: known[choice.backend, choice.precision].choice for bucket, choice in keep.choices.items()}
    records = [
        replace(item, parity=known[item.backend, item.precision].parity) if (item.backend, item.precision) in known else item
        for item in keep.measurements
    ]
    return replace(keep, choices=choices, measurements=tuple(records))


def _nothing_left(trials: list[_Trial], config: GraphConfig) -> BackendError | ParityError:
    reasons = "\n".join(f"  {trial.choice}: {trial.why}" for trial in trials)
    if any(trial.status == "refused" for trial in trials):
        return ParityError(f"no candidate for precision={config.precision!r} agrees with eager:\n{reasons}")
    return BackendError(f"no candidate could be built:\n{reasons}")
