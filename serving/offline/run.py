"""A job from its beginning to its end, on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...errors import ClassifyError, ExecutionError
from ...runtime.artifact.artifact import Artifact
from .batches import Batch
from .classifier import Classifier, identify, load
from .config import ClassifyConfig
from .failures import named
from .job import Job, open_job
from .output import ShardWriter
from .pipeline import make_clock, scored
from .plan import Shard
from .progress import Progress
from .sources import Image
from .stages import WRITE, Busy, Clock, Shares

Listener = Callable[[str, Progress | None], None]
"""Hears what a job does: a line of text now and then, and while it runs its progress."""


@dataclass(kw_only=True)
class Summary:
    """How a job stands. `images` and `errors` count all of it, `before` what earlier runs had done; the rest is of this run.

    `busy`, `starved` and `blocked` are the shares of the time that each stage's workers worked, waited for input, and for room
    behind them; the latter two are empty for a cluster. `model_stages` has them for the processes of a model that is a
    pipeline. `rows` is the batch that went through the model at once.
    `complete` is False when the job was interrupted.
    """

    out: str
    model: str
    complete: bool
    images: int
    errors: int
    before: int
    shards: int
    shards_done: int
    left_out: int
    seconds: float
    images_per_second: float
    rows: int
    busy: dict[str, float] = field(default_factory=dict)
    starved: dict[str, float] = field(default_factory=dict)
    blocked: dict[str, float] = field(default_factory=dict)
    bottleneck: str = ""
    model_stages: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As `--format json` prints it."""
        return asdict(self)


def classify(
    config: ClassifyConfig, *, stopped: Callable[[], bool] = lambda: False, listen: Listener = lambda text, progress: None
) -> Summary:
    """Classify what of the source is not classified yet. Once `stopped` says so, the batch under way is the last.

    Raises ClassifyError and ArtifactError; what was done until then stays done.
    """
    artifact = load(config)
    with begun(config, artifact, listen) as (job, waiting, progress):
        if not waiting or stopped():
            return concluded(config, artifact, job, progress)
        listen(f"loading {artifact.name} version {artifact.version}", None)
        classifier = Classifier(artifact, config)
        try:
            clock = make_clock(config, classifier)
            progress.start(clock)
            listen("", progress)
            classify_shards(job, waiting, config, classifier, clock, progress, stopped=stopped)
        finally:
            classifier.close()
        return concluded(config, artifact, job, progress, rows=classifier.batch)


@contextlib.contextmanager
def begun(config: ClassifyConfig, artifact: Artifact, listen: Listener) -> Generator[tuple[Job, Sequence[Shard], Progress]]:
    """The job in its folder, the shards that are still to be done, and how far it is. Raises ClassifyError."""
    listen(f"looking through {config.source}", None)
    with open_job(config, identify(artifact), report=lambda found: listen(f"{found:,} files", None)) as job:
        done = job.finished()
        waiting = [shard for shard in job.plan.shards if shard.number not in done]
        progress = Progress(
            job.plan,
            done={number: found.images for number, found in done.items()},
            errors=sum(found.errors for found in done.values()),
        )
        if done:
            shards = len(job.plan.shards)
            listen(f"{progress.committed:,} images are done; {len(waiting)} of {shards} shards are left", None)
        yield job, waiting, progress


def concluded(config: ClassifyConfig, artifact: Artifact, job: Job, progress: Progress, *, rows: int = 0) -> Summary:
    """How the job stands now, which its folder says too when all is done."""
    clock = progress.clock
    seconds = clock.elapsed if clock is not None else 0.0
    summary = Summary(
        out=str(config.out),
        model=f"{artifact.name}/{artifact.version}",
        complete=progress.shards_done == len(job.plan.shards),
        images=progress.committed,
        errors=progress.committed_errors,
        before=progress.before,
        shards=len(job.plan.shards),
        shards_done=progress.shards_done,
        left_out=job.plan.left_out,
        seconds=round(seconds, 3),
        images_per_second=round((progress.committed - progress.before) / seconds, 2) if seconds else 0.0,
        rows=rows,
        **_told(clock),
    )
    if summary.complete:
        job.write_summary(summary.to_json())
    return summary


def _told(clock: Busy | None) -> dict[str, Any]:
    """What a summary says of the stages."""
    if clock is None:
        return {}
    shares = clock.shares()
    of_state = {
        state: {name: round(share, 4) for name, one in shares.items() if (share := getattr(one, state)) is not None}
        for state in Shares._fields
    }
    parts = {part.name: {state: round(share, 4) for state, share in part.shares._asdict().items()} for part in clock.parts()}
    return {**of_state, "bottleneck": clock.bottleneck(), "model_stages": parts}


def classify_shards(
    job: Job,
    shards: Iterable[Shard],
    config: ClassifyConfig,
    classifier: Classifier,
    clock: Clock,
    progress: Progress,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Write the files of these shards, in order. Raises ClassifyError when more images are broken than are allowed."""
    place = _Placing(job, classifier, config, progress)
    try:
        with contextlib.closing(scored(job.plan, shards, config, classifier, clock, stopped=stopped)) as batches:
            for batch in batches:
                with clock.work(WRITE, len(batch.images)):
                    place(batch)
                if stopped():
                    break
    finally:
        place.abandon()


def too_many_errors(config: ClassifyConfig, progress: Progress) -> bool:
    """Whether more images are broken than the job allows."""
    return config.max_errors is not None and progress.errors > config.max_errors


class _Placing:
    """Puts images into their shards' files, which come one after the other."""

    def __init__(self, job: Job, classifier: Classifier, config: ClassifyConfig, progress: Progress) -> None:
        self._job, self._classifier, self._config, self._progress = job, classifier, config, progress
        self._writer: ShardWriter | None = None

    def __call__(self, batch: Batch) -> None:
        """Raises ClassifyError."""
        scores = iter(batch.scores)
        for part in batch.parts:
            for image in part.images:
                with named(WRITE, [image]):
                    error = self._write(part.shard, image, None if image.error is not None else next(scores))
                self._count(image, error)
            if part.last:
                with named(WRITE, f"at the end of {part.shard.output}"):
                    self._commit(part.shard)

    def _write(self, shard: Shard, image: Image, scores: np.ndarray | str | None) -> str | None:
        """What is wrong with the image, if anything."""
        error, labels = scores if isinstance(scores, str) else image.error, None
        if error is None:
            assert isinstance(scores, np.ndarray), "an image without an error has scores"
            try:
                labels = self._classifier.labels(scores)
            except ExecutionError as broken:
                error = f"the model {broken}"
        writer = self._begun(shard)
        if labels is not None:
            writer.add(image.name, image.row, labels)
        else:
            assert error is not None, "what has no labels says why"
            writer.add_error(image.name, image.row, error)
        return error

    def _count(self, image: Image, error: str | None) -> None:
        self._progress.image(error is not None)
        if too_many_errors(self._config, self._progress):
            raise ClassifyError(
                f"{self._progress.errors} images could not be classified, more than --max-errors {self._config.max_errors} "
                f"allows; the last was {image.name}: {error}. What is done stays done: a larger --max-errors goes on"
            )

    def _begun(self, shard: Shard) -> ShardWriter:
        if self._writer is None:
            self._writer = self._job.writer(shard)
        return self._writer

    def _commit(self, shard: Shard) -> None:
        writer = self._begun(shard)  # one of a shard without images has not
        writer.commit()
        self._progress.commit(shard, writer.images, writer.errors)
        self._writer = None

    def abandon(self) -> None:
        """Drop the file of a shard that was not finished."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
