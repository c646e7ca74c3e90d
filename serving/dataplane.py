"""What requests mean, whatever they came over: models, validation, deadlines, statistics. Front ends only convert."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from .. import __version__
from ..errors import ExecutionError, InputError, OverloadedError, UnsupportedError
from ..runtime.model_config import ConfigTensor
from .batcher import Batcher, Ticket
from .codec import binary_to_tensor
from .config import ServeConfig
from .config_json import config_json
from .decode import DecodePool, decode_rows
from .messages import DATATYPES, InferenceRequest, InferenceResponse, Tensor, bytes_array
from .models import ClassifyModel, DecodeModel, Model, TensorModel
from .repository import ModelRepository
from .results import requested_outputs, top_labels

__all__ = ["EXTENSIONS", "SERVER_NAME", "DataPlane"]

SERVER_NAME = "penstock"
EXTENSIONS = ("classification", "model_configuration", "statistics", "binary_tensor_data", "parameters", "model_repository")

T = TypeVar("T")
log = logging.getLogger("penstock.serving")


class DataPlane:
    """All of the protocol's meaning over one repository. Coroutines run on the front ends' event loop and never block it."""

    def __init__(self, repository: ModelRepository, decoder: DecodePool, config: ServeConfig) -> None:
        self.repository = repository
        self.decoder = decoder
        self.config = config

    def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions of this server."""
        return {"name": SERVER_NAME, "version": __version__, "extensions": list(EXTENSIONS)}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """A model's versions, platform and tensors; -1 is the batch dimension."""
        model = self.repository.get(name, version)
        return {
            "name": model.name,
            "versions": self.repository.versions(name),
            "platform": _PLATFORMS.get(model.config.backend, model.config.backend),
            "inputs": [_tensor_metadata(tensor) for tensor in model.config.inputs],
            "outputs": [_tensor_metadata(tensor) for tensor in model.config.outputs],
        }

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """The model's configuration in Triton's field names, with every default spelled out."""
        model = self.repository.get(name, version)
        return {**config_json(model.config), "name": model.name}

    def model_statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """The statistics extension's answer for one model, or for all when no name is given."""
        models = [self.repository.get(name, version)] if name else self.repository.ready_models()
        return {
            "model_stats": [{"name": m.name, "version": m.version, **m.statistics.snapshot()} for m in models],
        }

    def refuse_control(self, name: str) -> None:
        """Loading and unloading over the network: always refused, because this server's models are fixed at its start."""
        raise UnsupportedError(f"cannot load or unload '{name[:100]}': model control is not enabled on this server")

    async def infer(self, name: str, version: str, request: InferenceRequest) -> InferenceResponse:
        """Answer one request. Raises a RequestError that says what is wrong, or ExecutionError when the model failed."""
        model = self.repository.get(name, version)
        begin = time.monotonic()
        try:
            if request.raw is not None:
                request.inputs = [_raw_input(model, request.raw)]
            tensors, rows = model.check_inputs(request)
            model.check_outputs(request)
        except InputError:
            model.statistics.failed(int((time.monotonic() - begin) * 1e9))
            raise
        datatypes = {tensor.name: tensor.datatype for tensor in model.config.outputs}
        if isinstance(model, TensorModel):
            arrays = dict(zip(model.output_names, await self._run(model, tensors, rows, request), strict=True))
            arrays = {tensor: arrays[tensor] for tensor in datatypes}
        else:
            arrays = await self._composed(model, tensors[0], rows, request, begin)
        outputs = requested_outputs(request, arrays, datatypes, model.labels)
        return InferenceResponse(model=model.name, version=model.version, outputs=outputs, id=request.id)

    async def classify(
        self, name: str, image: bytes, *, version: str = "", count: int = 5, timeout: float | None = None
    ) -> dict[str, Any]:
        """The most probable labels of one encoded image."""
        model = self.repository.get(name, version)
        target = model.target if isinstance(model, (ClassifyModel, DecodeModel)) else model
        if not isinstance(target, TensorModel) or target.preprocessor is None:
            raise UnsupportedError(
                f"model '{name}' does not say how an image becomes its input; send tensors to /v2/models/{name}/infer"
            )
        if not 1 <= count <= 1000:
            raise InputError(f"k must be from 1 to 1000, got {count}")
        begin = time.monotonic()
        outputs = await self._images(target, [image], timeout, 0)
        if model is not target:
            model.statistics.composed(1, int((time.monotonic() - begin) * 1e9))
        scores = outputs[target.output_names.index(target.config.outputs[0].name)][0]
        if scores.ndim != 1:
            raise UnsupportedError(
                f"the output of model '{name}' has shape {list(scores.shape)} per image; it is no classifier"
            )
        predictions = top_labels(scores, count, target.labels, probabilities=target.probabilities)
        return {"model": model.name, "version": model.version, "predictions": predictions}

    async def in_pool(self, work: Callable[[], T]) -> T:
        """Run something long, such as parsing megabytes of JSON, beside the event loop."""
        return await asyncio.wrap_future(self.decoder.submit(work))

    async def _run(
        self, model: TensorModel, tensors: Sequence[Tensor], rows: int, request: InferenceRequest
    ) -> list[np.ndarray]:
        ticket = model.batcher.admit(rows, timeout=self._timeout(request.timeout), priority=request.priority)
        given = {tensor.name: tensor.data for tensor in tensors}
        model.batcher.submit(ticket, [given[name] for name in model.input_names])
        return await self._answer(model.batcher, ticket)

    async def _composed(
        self, model: Model, images: Tensor, rows: int, request: InferenceRequest, begin: float
    ) -> dict[str, np.ndarray]:
        """The decode model and the ensemble, done natively on the decode pool."""
        data = list(images.data.ravel())
        try:
            if isinstance(model, ClassifyModel):
                answer = await self._images(model.target, data, request.timeout, request.priority)
                outputs = dict(zip(model.target.output_names, answer, strict=True))
                arrays = {name: outputs[source] for name, source in model.outputs.items()}
            elif isinstance(model, DecodeModel) and model.target.preprocessor is not None:
                preprocessor, shape = model.target.preprocessor, model.target.image_input.shape
                decoded = await self.in_pool(lambda: decode_rows(preprocessor, data, shape))
                arrays = {model.config.outputs[0].name: decoded}
            else:
                raise UnsupportedError(f"model '{model.name}' cannot be run by this server")
        except Exception:
            model.statistics.failed(int((time.monotonic() - begin) * 1e9))
            raise
        model.statistics.composed(rows, int((time.monotonic() - begin) * 1e9))
        return arrays

    async def _images(self, model: TensorModel, images: list[bytes], timeout: float | None, priority: int) -> list[np.ndarray]:
        """Admit first, decode then, so that what cannot be answered in time costs no decoding."""
        preprocessor, batcher = model.preprocessor, model.batcher
        if preprocessor is None:
            raise UnsupportedError(f"model '{model.name}' does not say how an image becomes its input")
        ticket = batcher.admit(len(images), timeout=self._timeout(timeout), priority=priority)
        shape = model.image_input.shape

        def decode() -> None:
            if ticket.future.done():  # given up or expired while it waited for a thread
                return
            begin = time.monotonic()
            try:
                batcher.submit(ticket, [decode_rows(preprocessor, images, shape)])
            except InputError as error:
                batcher.refuse(ticket, error)
            else:
                model.decoding.composed(len(images), int((time.monotonic() - begin) * 1e9))

        try:
            work = self.decoder.submit(decode)
        except OverloadedError as error:
            batcher.refuse(ticket, error)
        else:
            ticket.future.add_done_callback(lambda _: work.cancel())
            work.add_done_callback(lambda done: _refuse_crashed(batcher, ticket, done))
        return await self._answer(batcher, ticket)

    async def _answer(self, batcher: Batcher, ticket: Ticket) -> list[np.ndarray]:
        """Wait for a ticket's rows. Cancelling this gives up its place; its deadline ends it unless it runs by then."""
        timer = asyncio.get_running_loop().call_later(max(0.0, ticket.deadline - time.monotonic()), batcher.expire, ticket)
        try:
            return await asyncio.wrap_future(ticket.future)
        finally:
            timer.cancel()

    def _timeout(self, requested: float | None) -> float:
        return self.config.default_timeout_seconds if requested is None else requested


def _refuse_crashed(batcher: Batcher, ticket: Ticket, done: Future[None]) -> None:
    """A decoder that fails in a way nobody foresaw fails its own request."""
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("decoding an image failed", exc_info=error)
        batcher.refuse(ticket, ExecutionError("the image could not be decoded; the server's log says why"))


def _tensor_metadata(tensor: ConfigTensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": [-1, *tensor.shape]}


def _raw_input(model: Model, body: bytes) -> Tensor:
    """A body that is one input's bytes: an image (or any one BYTES element), or whole rows of a tensor."""
    if len(model.config.inputs) != 1:
        raise InputError(f"model '{model.name}' has {len(model.config.inputs)} inputs; a raw body can only stand for one")
    declared = model.config.inputs[0]
    if declared.datatype == "BYTES":
        return Tensor(declared.name, "BYTES", bytes_array([body], (1, *(1 for _ in declared.shape))))
    size = math.prod(declared.shape) * np.dtype(DATATYPES[declared.datatype]).itemsize
    if not body or len(body) % size:
        raise InputError(f"a raw body for input '{declared.name}' must be a multiple of {size} bytes, got {len(body)}")
    return binary_to_tensor(declared.name, declared.datatype, (len(body) // size, *declared.shape), body)


_PLATFORMS = {"onnxruntime": "onnxruntime_onnx", "ensemble": "ensemble", "python": "python"}
