"""The stages of a job, as SPDL's pipeline: bounded queues between threads, results in the order of the images.

All that is expected to go wrong with an image is in the image by the time a stage ends; what a stage raises is a fault of ours
and ends the pipeline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from spdl.pipeline import PipelineBuilder, PipelineFailure

from ...runtime.base.memory import keep_freed_memory
from .batches import Batch, Batches, Decoded, collate
from .classifier import Classifier
from .config import ClassifyConfig
from .locations import IMAGE_SUFFIXES, UnreadableError, read_file
from .plan import Plan, Shard
from .progress import Clock
from .sources import Image, parquet_images, tar_images

READ, DECODE, MODEL, WRITE = "read", "decode", "model", "write"
_BUFFERED = 2
_MOST_IMAGES = 8
# So many pieces are on their way that large images must not come in eights.
_MOST_BYTES = 8 << 20


def make_clock(config: ClassifyConfig, classifier: Classifier) -> Clock:
    """The clock of a run, which begins now."""
    return Clock({READ: config.reading_threads, DECODE: config.decoders, MODEL: classifier.instances, WRITE: 1})


def scored(
    plan: Plan,
    shards: Iterable[Shard],
    config: ClassifyConfig,
    classifier: Classifier,
    clock: Clock,
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> Generator[Batch]:
    """Batches of the shards' images with their scores, in order; after `stopped` no more are read."""

    def read(piece: Piece) -> Piece:
        with clock.work(READ):
            return fill(piece, config.max_image_bytes)

    def decode(piece: Piece) -> Decoded:
        with clock.work(DECODE):
            return Decoded(piece.shard, piece.images, classifier.decode(piece.images), piece.last)

    def score(batch: Batch) -> Batch:
        assert batch.rows is not None, "batches are collated"
        if len(batch.rows):
            with clock.work(MODEL):
                batch.scores = classifier.scores(batch.rows)
        batch.rows = None
        return batch

    keep_freed_memory()
    source = _pieces(plan, shards, config, images=min(_MOST_IMAGES, classifier.batch), stopped=stopped)
    # A batch more than there are sessions is at hand, so that no session waits for the event loop.
    ahead = classifier.instances + 1
    with contextlib.ExitStack() as stack:
        readers, decoders, sessions = (
            stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix=f"headrace-{name}"))
            for name, threads in ((READ, config.reading_threads), (DECODE, config.decoders), (MODEL, classifier.instances))
        )
        builder: PipelineBuilder[Any, Any] = PipelineBuilder()
        pipeline = (
            builder.add_source(_timed(source, clock))
            .pipe(read, concurrency=config.reading_threads, executor=readers, output_order="input")
            .pipe(decode, concurrency=config.decoders, executor=decoders, output_order="input")
            .aggregate(Batches(classifier.batch))
            .pipe(collate)
            .pipe(score, concurrency=ahead, executor=sessions, output_order="input")
            .add_sink(_BUFFERED)
            .build(num_threads=1, max_failures=0)
        )
        try:
            with pipeline.auto_stop():
                yield from pipeline
        except PipelineFailure as failure:
            raise _cause(failure) from failure


def _cause(error: BaseException) -> BaseException:
    """What a stage raised in the first place, out of what SPDL wraps around it."""
    while isinstance(error, BaseExceptionGroup) or error.__cause__ is not None:
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    return error


def _timed(source: Iterator[Piece], clock: Clock) -> Iterator[Piece]:
    """The pieces; what it takes to come by them, as from an archive, is reading."""
    while True:
        with clock.work(READ):
            piece = next(source, None)
        if piece is None:
            return
        yield piece


@dataclass(slots=True)
class Piece:
    """Images of one shard that follow each other. `last` says that the shard ends with them, of which there may be none."""

    shard: Shard
    images: list[Image] = field(default_factory=list)
    last: bool = False


def _pieces(
    plan: Plan, shards: Iterable[Shard], config: ClassifyConfig, *, images: int, stopped: Callable[[], bool]
) -> Iterator[Piece]:
    """At most `images` images at a time, in order, until `stopped`. Those of folders and lists are still to be read."""
    for shard in shards:
        piece, size = Piece(shard), 0
        for image, weight in _images(plan, shard, config):
            if piece.images and (len(piece.images) == images or size + weight > _MOST_BYTES):
                yield piece
                piece, size = Piece(shard), 0
            if stopped():
                return
            piece.images.append(image)
            size += weight
        piece.last = True
        yield piece


def fill(piece: Piece, limit: int) -> Piece:
    """Read the images that are still in their files; those that cannot be read say why."""
    for image in piece.images:
        if image.data is None and image.error is None:
            try:
                image.data = read_file(image.location, limit)
            except UnreadableError as error:
                image.error = f"the file cannot be read: {error}"
    return piece


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
