"""Tensors and images through a model's queue: decoded in its place there, answered from the cache, ended by the deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import numpy as np

from ...errors import ExecutionError, InputError, OverloadedError, UnsupportedError
from ..batching.request_queue import RequestQueue
from ..batching.statistics import failure
from ..batching.ticket import Ticket
from ..images.decode_pool import DecodePool, decode_rows
from ..models.models import ClassifyModel, DecodeModel, Model, QueuedModel, TensorModel
from ..models.response_cache import fingerprint
from ..observe.stages import Stage, note_batch, stages
from ..protocol.messages import InferenceRequest, Tensor, many_strings

# Below this, hashing an input takes less than handing it to another thread.
_LONG_HASH = 256 * 1024

T = TypeVar("T")
log = logging.getLogger("headrace.serving")


class Execution:
    """Runs what a data plane has checked. `decoder` and `parser` are its threads for images and bodies, `timeout` the seconds
    of a request that asks for no others. Coroutines never block the event loop."""

    def __init__(self, decoder: DecodePool, parser: DecodePool, *, timeout: float) -> None:
        self._decoder = decoder
        self._parser = parser
        self._timeout = timeout

    async def in_pool(self, work: Callable[[], T]) -> T:
        """Run something long, such as hashing megabytes, beside the event loop."""
        return await asyncio.wrap_future(self._decoder.submit(work))

    async def in_parser(self, work: Callable[[], T]) -> T:
        """The same for unpacking and parsing bodies, which never take the threads that images need."""
        return await asyncio.wrap_future(self._parser.submit(work))

    async def tensors(
        self, model: QueuedModel, tensors: Sequence[Tensor], rows: int, request: InferenceRequest
    ) -> list[np.ndarray]:
        """The outputs of a model that has a queue, in its order."""
        if many_strings(tensors):
            await self.in_parser(partial(model.check_values, tensors))
        else:
            model.check_values(tensors)
        given = {tensor.name: tensor.data for tensor in tensors}
        inputs = [given[name] for name in model.input_names]

        async def compute() -> list[np.ndarray]:
            timeout, wait = self._times(model, request.timeout, request.priority)
            ticket = model.batcher.admit(rows, timeout=timeout, priority=request.priority, wait=wait)
            model.batcher.submit(ticket, inputs)
            return await self._answer(model.batcher, ticket)

        return await self._cached(model, inputs, sum(array.nbytes for array in inputs), compute)

    async def _cached(
        self,
        model: QueuedModel,
        inputs: Sequence[np.ndarray] | Sequence[bytes],
        size: int,
        compute: Callable[[], Awaitable[list[np.ndarray]]],
    ) -> list[np.ndarray]:
        """What the model answered to the same input of `size` bytes before, else what it computes now."""
        if (cache := model.cache) is None:
            return await compute()
        begin = time.perf_counter_ns()
        key = await self.in_pool(partial(fingerprint, inputs)) if size > _LONG_HASH else fingerprint(inputs)
        outputs = cache.get(key)
        looked = time.perf_counter_ns()
        if outputs is not None:
            model.statistics.cached(looked - begin)
            return outputs
        outputs = await compute()
        computed = time.perf_counter_ns()
        cache.put(key, outputs)
        model.statistics.missed(looked - begin + time.perf_counter_ns() - computed)
        return outputs

    async def composed(
        self, model: Model, images: Tensor, rows: int, request: InferenceRequest, begin: float
    ) -> dict[str, np.ndarray]:
        """The decode model and the ensemble, done natively on the decode pool."""
        data = list(images.data.ravel())
        try:
            if isinstance(model, ClassifyModel):
                answer = await self.images(model.target, data, request.timeout, request.priority)
                outputs = dict(zip(model.target.output_names, answer, strict=True))
                arrays = {name: outputs[source] for name, source in model.outputs.items()}
            elif isinstance(model, DecodeModel) and model.target.preprocessor is not None:
                preprocessor, shape = model.target.preprocessor, model.target.image_input.shape
                decoded = await self.in_pool(lambda: decode_rows(preprocessor, data, shape))
                if (noted := stages.get()) is not None:
                    noted.append(Stage("decode", begin, time.monotonic(), {}))
                arrays = {model.config.outputs[0].name: decoded}
            else:
                raise UnsupportedError(f"model '{model.name}' cannot be run by this server")
        except Exception as error:
            model.statistics.failed(nanoseconds(begin), failure(error))
            raise
        model.statistics.composed(rows, nanoseconds(begin))
        return arrays

    async def images(
        self, model: TensorModel, images: list[bytes], timeout: float | None, priority: int, best: int = 0
    ) -> list[np.ndarray]:
        """What the model says of these images, which are hashed as they came, so that one that comes again is not decoded."""
        size = sum(len(image) for image in images)
        return await self._cached(model, images, size, partial(self._decoded, model, images, timeout, priority, best))

    async def _decoded(
        self, model: TensorModel, images: list[bytes], timeout: float | None, priority: int, best: int
    ) -> list[np.ndarray]:
        """Admit first, decode then, so that what cannot be answered in time costs no decoding."""
        preprocessor, batcher = model.preprocessor, model.batcher
        if preprocessor is None:
            raise UnsupportedError(f"model '{model.name}' has no preprocessing for images; send tensors")
        allowed, wait = self._times(model, timeout, priority)
        ticket = batcher.admit(len(images), timeout=allowed, priority=priority, best=best, wait=wait)
        shape, noted = model.image_input.shape, stages.get()

        def decode() -> None:
            if ticket.future.done():  # given up or expired while it waited for a thread
                return
            begin = time.monotonic()
            try:
                try:
                    with batcher.slot(ticket) as slot:
                        rows = decode_rows(preprocessor, images, shape, slot[0] if slot else None)
                finally:
                    if noted is not None:  # before anybody can have the answer
                        noted.append(Stage("decode", begin, time.monotonic(), {}))
                batcher.submit(ticket, [rows])
            except InputError as error:
                batcher.reject(ticket, error)
            else:
                model.decoding.composed(len(images), nanoseconds(begin))

        try:
            work = self._decoder.submit(decode)
        except OverloadedError as error:
            batcher.reject(ticket, error)
        else:
            ticket.future.add_done_callback(lambda _: work.cancel())
            work.add_done_callback(lambda done: _reject_crashed(batcher, ticket, done))
        return await self._answer(batcher, ticket)

    async def _answer(self, batcher: RequestQueue, ticket: Ticket) -> list[np.ndarray]:
        """Wait for a ticket's rows. Cancelling this gives up its place; its deadline ends it unless it runs by then."""
        timer = asyncio.get_running_loop().call_later(max(0.0, ticket.deadline - time.monotonic()), batcher.expire, ticket)
        try:
            return await asyncio.wrap_future(ticket.future)
        finally:
            timer.cancel()
            note_batch(ticket, time.monotonic())

    def _times(self, model: QueuedModel, requested: float | None, priority: int) -> tuple[float, float]:
        """Seconds until a request's deadline, and those that it may be queued, if not 0."""
        return model.rules.times(requested, priority, self._timeout)


def _reject_crashed(batcher: RequestQueue, ticket: Ticket, done: Future[None]) -> None:
    """A decoder that fails in a way nobody foresaw fails its own request."""
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("decoding an image failed", exc_info=error)
        batcher.reject(ticket, ExecutionError("the image could not be decoded; the server's log says why"))


def nanoseconds(begin: float) -> int:
    """Since `begin` on the monotonic clock."""
    return int((time.monotonic() - begin) * 1e9)
