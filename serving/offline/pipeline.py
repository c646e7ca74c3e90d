"""The stages of a job, as SPDL's pipeline: bounded queues between threads, results in the order of the images.

All that is expected to go wrong with an image is in the image by the time a stage ends; what a stage raises is a fault of ours
and ends the pipeline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spdl.pipeline import PipelineBuilder, PipelineFailure

from .batches import Batch, Batches, Decoded, collate
from .classifier import Classifier
from .clock import Clock
from .config import ClassifyConfig
from .plan import Plan, Shard
from .reading import MOST_IMAGES, Piece, fill, pieces

__all__ = ["make_clock", "scored"]

READ, DECODE, MODEL, WRITE = "read", "decode", "model", "write"
_BUFFERED = 2


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

    source = pieces(plan, shards, config, images=min(MOST_IMAGES, classifier.batch), stopped=stopped)
    # A batch more than there are sessions is at hand, so that no session waits for the event loop.
    ahead = classifier.instances + 1
    with contextlib.ExitStack() as stack:
        readers, decoders, sessions = (
            stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix=f"headrace-{name}"))
            for name, threads in (
                (READ, config.reading_threads),
                (DECODE, config.decoders),
                (MODEL, classifier.instances),
            )
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
