"""The stages of a job, as SPDL's pipeline: bounded queues between threads, results in the order of the images.

All that is expected to go wrong with an image is in the image by the time a stage ends; what a stage raises ends the pipeline,
as an error that names the stage and the images.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from spdl.pipeline import PipelineBuilder, PipelineFailure

from ...runtime.artifact.pipeline.shares import State
from ...runtime.base.memory import keep_freed_memory
from .batches import Batch, Batches, Decoded, collate
from .classifier import Classifier
from .config import ClassifyConfig
from .failures import StageError, named
from .locations import IMAGE_SUFFIXES, Presence, UnreadableError, raise_if_lost, read_file
from .plan import Plan, Shard
from .queues import Queues
from .sources import Image, parquet_images, tar_images
from .stages import DECODE, MODEL, READ, WRITE, Clock, StageClock

Stopped = Callable[[], bool]
"""Says whether the job is to end early."""

_SRC, _COLLATE = "src", "collate"  # the first as spdl calls it
_BEGINNING = "before the first image"
_BUFFERED = 2
_MOST_IMAGES = 8
# So many pieces are on their way that large images must not come in eights.
_MOST_BYTES = 8 << 20


# Of tasks that fail, which end the job with an error of their own; of a fault of ours that has its traceback.
logging.getLogger("spdl.pipeline._common._misc").addFilter(lambda record: record.levelno < logging.ERROR)


def make_clock(config: ClassifyConfig, classifier: Classifier) -> Clock:
    """The clock of a run, which begins now."""
    workers = {READ: config.reading_threads, DECODE: config.decoders, MODEL: classifier.instances, WRITE: 1}
    return Clock(workers, classifier.parts())


def scored(
    plan: Plan,
    shards: Iterable[Shard],
    config: ClassifyConfig,
    classifier: Classifier,
    clock: Clock,
    *,
    stopped: Stopped = lambda: False,
) -> Generator[Batch]:
    """Batches of the shards' images with their scores, in order; after `stopped` no more are read."""
    with named(READ, _BEGINNING):
        presence = Presence(config.source, plan.base)

    def read(piece: Piece) -> Piece:
        waiting = [image for image in piece.images if image.data is None and image.error is None]
        if waiting:
            with clock.work(READ, len(waiting)):
                for image in waiting:
                    with named(READ, [image]):
                        fill(image, config.max_image_bytes, presence)
        return piece

    def decode(piece: Piece) -> Decoded:
        with named(DECODE, piece.images), clock.work(DECODE, len(piece.images)):
            return Decoded(piece.shard, piece.images, classifier.decode(piece.images), piece.last)

    def score(batch: Batch) -> Batch:
        assert batch.rows is not None, "batches are collated"
        if rows := len(batch.rows):
            with named(MODEL, batch.images), clock.work(MODEL, rows):
                batch.scores = classifier.scores(batch.rows)
        batch.rows = None
        return batch

    def merge(batch: Batch) -> Batch:
        with named(MODEL, batch.images):
            return collate(batch)

    keep_freed_memory()
    stages = clock.stages
    source = _source(plan, shards, config, clock.source, presence, min(_MOST_IMAGES, classifier.batch), stopped)
    queues = Queues(
        {
            _SRC: (None, stages[READ]),
            READ: (stages[READ], stages[DECODE]),
            DECODE: (stages[DECODE], None),
            _COLLATE: (None, stages[MODEL]),
            MODEL: (stages[MODEL], None),
        }
    )
    # A batch more than there are sessions is at hand, so that no session waits for the event loop.
    ahead = classifier.instances + 1
    with contextlib.ExitStack() as stack:
        stack.callback(presence.close)
        readers, decoders, sessions = (
            stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix=f"headrace-{name}"))
            for name, threads in ((READ, config.reading_threads), (DECODE, config.decoders), (MODEL, classifier.instances))
        )
        builder: PipelineBuilder[Any, Any] = PipelineBuilder()
        queue_class: Any = queues  # which spdl only calls
        pipeline = (
            builder.add_source(source)
            .pipe(read, concurrency=config.reading_threads, executor=readers, name=READ, output_order="input")
            .pipe(decode, concurrency=config.decoders, executor=decoders, name=DECODE, output_order="input")
            .aggregate(Batches(classifier.batch))
            .pipe(merge, name=_COLLATE)
            .pipe(score, concurrency=ahead, executor=sessions, name=MODEL, output_order="input")
            .add_sink(_BUFFERED)
            .build(num_threads=1, max_failures=0, queue_class=queue_class)
        )
        before = {READ: _SRC, DECODE: READ, MODEL: _COLLATE, WRITE: MODEL}
        clock.fill = {stage: queues.made[feeding].fill for stage, feeding in before.items()}
        try:
            with pipeline.auto_stop():
                batches = iter(pipeline)
                while True:
                    with stages[WRITE].spend(State.STARVED):
                        batch = next(batches, None)
                    if batch is None:
                        break
                    yield batch
        except PipelineFailure as failure:
            raise _cause(failure) from failure


def _cause(error: BaseException) -> BaseException:
    """What a stage raised in the first place, out of what SPDL wraps around it."""
    while isinstance(error, BaseExceptionGroup) or (error.__cause__ is not None and not isinstance(error, StageError)):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    return error


@dataclass(slots=True)
class Piece:
    """Images of one shard that follow each other. `last` says that the shard ends with them, of which there may be none."""

    shard: Shard
    images: list[Image] = field(default_factory=list)
    last: bool = False


def _source(
    plan: Plan,
    shards: Iterable[Shard],
    config: ClassifyConfig,
    clock: StageClock,
    presence: Presence,
    images: int,
    stopped: Stopped,
) -> Iterator[Piece]:
    """The pieces of all shards in order, until `stopped`. Coming by images with their bytes, as from an archive, is reading."""
    place = _BEGINNING
    for shard in shards:
        pieces = _pieces(plan, shard, config, presence, images, stopped)
        while True:
            reading = clock.spend(State.BUSY) if shard.kind != "files" else contextlib.nullcontext()
            with named(READ, place), reading:
                piece = next(pieces, None)
            if piece is None:
                break
            clock.items += sum(not image.location for image in piece.images)
            if piece.images:
                place = f"after {piece.images[-1].name}"
            with clock.spend(State.BLOCKED):  # until spdl asks for more, which it does when there is room for it
                yield piece
        if stopped():
            return


def _pieces(
    plan: Plan, shard: Shard, config: ClassifyConfig, presence: Presence, images: int, stopped: Stopped
) -> Iterator[Piece]:
    """At most `images` images of a shard at a time. Those of folders and lists are still to be read."""
    piece, size = Piece(shard), 0
    for image, weight in _images(plan, shard, config):
        if image.error is not None and image.name == shard.name:  # the archive's own
            presence.check()
        if piece.images and (len(piece.images) == images or size + weight > _MOST_BYTES):
            yield piece
            piece, size = Piece(shard), 0
        if stopped():
            return
        piece.images.append(image)
        size += weight
    piece.last = True
    yield piece


def fill(image: Image, limit: int, presence: Presence) -> None:
    """Read an image that is still in its file, or have it say why it cannot be read. Raises ClassifyError when that is not for
    the file, but for the source or the machine."""
    try:
        image.data = read_file(image.location, limit)
    except UnreadableError as error:
        raise_if_lost(error.__cause__, image.location)
        presence.check()
        image.error = f"the file cannot be read: {error}"


def _images(plan: Plan, shard: Shard, config: ClassifyConfig) -> Iterator[tuple[Image, int]]:
    """Every image of a shard with the bytes it takes or will take."""
    if shard.kind == "files":
        for row, (name, location, size) in enumerate(plan.members(shard)):
            yield Image(row, name, location=location), max(size, 0)
        return
    if shard.kind == "tar":
        found = tar_images(shard.location, shard.name, IMAGE_SUFFIXES, config.max_image_bytes)
    else:
        found = parquet_images(shard.location, shard.name, config.column, config.max_image_bytes)
    for image in found:
        yield image, len(image.data or b"")
