"""Answers for images from the very parts that serve them: the repository's model, its decode pool, its batcher, its data plane.

So an answer is the server's, whatever the model's outputs are, and batches form as they do there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ArtifactError, InputError, RequestError, UnsupportedError
from ...runtime.artifact.artifact import load_artifact
from ...runtime.artifact.manifest import MANIFEST
from ..config import ServeConfig
from ..images.decode_pool import DecodePool
from ..models.models import TensorModel
from ..models.repository import ModelRepository
from ..plane.data_plane import DataPlane
from ..protocol.results import image_routes, not_answered
from .config import PredictConfig
from .images import Named

# Batches' worth of images that are on their way together, so that the next one is decoded when a batch is done.
_BATCHES_AHEAD = 3
_MOST_AHEAD = 64
_READERS = 8
_PATIENCE = 24 * 3600.0  # a deadline is for whoever waits for a server


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is said of one image: the server's answer for it, or the `error`."""

    image: str
    answer: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"image": self.image, **(self.answer if self.error is None else {"error": self.error})}


def predict(folder: Path, images: Iterable[Named], config: PredictConfig, show: Callable[[Row], None]) -> int:
    """Have the model in `folder` answer each image, and `show` the rows in their order; how many of them are errors.

    Raises ArtifactError or BackendError when the model cannot be loaded, UnsupportedError when it answers no images.
    """
    served = ServeConfig.of(
        models=folder.resolve().parent,
        model_control_mode="explicit",
        load_models=(folder.resolve().name,),
        trust_repository=config.trust_repository,
        threads=config.threads,
        instances=1,
        decoding=config.decoding,
        max_pixels=config.max_pixels,
        max_queue_delay_seconds=0.0,
        memory_bytes=1,  # no further sessions are tried: the first one is what a server answers with
    )
    repository = ModelRepository(served)
    decoder = DecodePool(served.images.decoders, limit=served.max_queue)
    try:
        repository.load()
        return asyncio.run(_answered(DataPlane(repository, decoder, served), folder.resolve(), images, config, show))
    finally:
        repository.close(drain=False)
        decoder.close()


async def _answered(
    plane: DataPlane, folder: Path, images: Iterable[Named], config: PredictConfig, show: Callable[[Row], None]
) -> int:
    name = folder.name
    model = plane.repository.get(name)
    if not isinstance(model, TensorModel):  # one of Triton's layout
        raise ArtifactError(
            f"{folder / model.version} holds no {MANIFEST}, which says how an image becomes the model's input; package the "
            "model (headrace compile), or restore the file from a copy"
        )
    if model.preprocessor is None:
        raise UnsupportedError(f"{load_artifact(folder).imageless}; package it with its preprocessing (headrace migrate)")
    if not image_routes(model.task):
        raise UnsupportedError(not_answered(model.task, "classify", name) or "")
    errors = 0

    async def answer(image: bytes) -> dict[str, Any]:
        return await plane.answer_image(name, image, count=config.top_k, timeout=_PATIENCE)

    ahead = min(_MOST_AHEAD, _BATCHES_AHEAD * model.config.max_batch_size)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="headrace-read") as readers:
        read = _reader(readers, config)
        async for row in _in_order((_row(image, read, answer) for image in images), ahead):
            errors += row.error is not None
            show(row)
    return errors


def _reader(readers: ThreadPoolExecutor, config: PredictConfig) -> Callable[[Named], Awaitable[bytes]]:
    return lambda image: asyncio.get_running_loop().run_in_executor(readers, image.read, config)


async def _row(
    image: Named, read: Callable[[Named], Awaitable[bytes]], answer: Callable[[bytes], Awaitable[dict[str, Any]]]
) -> Row:
    try:
        data = await read(image)
        if not data:
            raise InputError("it is empty")
        return Row(image=image.name, answer=await answer(data))
    except RequestError as error:
        return Row(image=image.name, error=str(error))


async def _in_order(work: Iterator[Any], ahead: int) -> AsyncIterator[Any]:
    """The results of coroutines in their order, of which so many run at once."""
    waiting: deque[asyncio.Task[Any]] = deque()
    try:
        for each in work:
            waiting.append(asyncio.create_task(each))
            if len(waiting) == ahead:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waiting, return_exceptions=True)
