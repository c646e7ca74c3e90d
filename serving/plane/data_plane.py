"""What requests mean, whatever they came over: models, validation, deadlines, statistics. Front ends only convert."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..._version import __version__
from ...errors import ExecutionError, InputError, OverloadedError, RequestError, UnsupportedError
from ...runtime.artifact.model_config import ConfigTensor
from ...runtime.base.memory import give_back_memory
from ...runtime.base.task import Task
from ..batching.statistics import failure
from ..config import ServeConfig
from ..guard.byte_budget import ByteBudget
from ..guard.rate_limit import RateLimiter
from ..images.decode_pool import DecodePool
from ..images.preview import preview
from ..models.foreign.ensemble import EnsembleModel, Step
from ..models.live_stats import server_live_stats
from ..models.models import ClassifyModel, DecodeModel, Model, QueuedModel, TensorModel
from ..models.repository_protocol import RepositoryProtocol
from ..observe.server_load import ServerLoad
from ..protocol.codec import binary_to_tensor
from ..protocol.config_json import config_json
from ..protocol.messages import DATATYPES, InferenceRequest, InferenceResponse, Tensor, bytes_array, many_strings
from ..protocol.results import chosen, classified, embedded, image_routes, not_answered, requested_outputs
from .ensembles import run_ensemble
from .execution import Execution, nanoseconds
from .settings import Settings
from .shared_memory import SharedMemory

EXTENSIONS = ("classification", "model_configuration", "statistics", "binary_tensor_data", "parameters", "model_repository")

# Below this, copying from or to shared memory takes less than handing it to another thread.
_LONG_COPY = 1 << 20
_STRINGS_LONGER = 16  # each element of BYTES is one by itself
# Threads that unpack and parse bodies, and how many may wait for them.
_PARSERS, _MAX_PARSING = 2, 64
# After a larger body the allocator would keep what nobody uses.
_LARGE_BODY, _GIVE_BACK_SECONDS = 8 << 20, 0.5

T = TypeVar("T")
log = logging.getLogger("headrace.serving")

_LONGEST_NAME = 255  # bytes of a file's name, Linux's NAME_MAX


def _give_back() -> None:
    gc.collect(1)  # an error that ended a request may hold all of it in a circle; what is young takes a millisecond
    give_back_memory()


class DataPlane:
    """All of the protocol's meaning over one repository. Coroutines run on the front ends' event loop and never block it."""

    def __init__(
        self, repository: RepositoryProtocol, decoder: DecodePool, config: ServeConfig, *, settings: Settings | None = None
    ) -> None:
        self.repository = repository
        self.decoder = decoder
        self.config = config
        self._parser = DecodePool(_PARSERS, limit=_MAX_PARSING)
        self._execution = Execution(decoder, self._parser, timeout=config.batching.default_timeout_seconds)
        self._giving_back: asyncio.TimerHandle | None = None
        # One client leaves others half of it, but has room for one body.
        share = max(config.limits.max_inflight_bytes // 2, config.limits.largest_bytes)
        self.bytes = ByteBudget(config.limits.max_inflight_bytes, share)
        self._shared_memory = SharedMemory(limit=config.limits.max_body_bytes) if config.security.shared_memory else None
        self._settings = settings if config.security.allow_settings else None
        self._load = ServerLoad(child=config.front_ends > 0)
        self._limiter = RateLimiter(config.limits.rate_limit) if config.limits.rate_limit else None

    def count_request(self, client: str) -> None:
        """Count an inference request of a client, before its body is read. Raises RateLimitError when it sends too many."""
        if self._limiter is not None:
            self._limiter.admit(client)

    @property
    def shared_memory(self) -> SharedMemory:
        """The registered regions. Raises UnsupportedError unless the server was started to have them."""
        if self._shared_memory is None:
            raise UnsupportedError(
                "Client shared memory is disabled: it is not enabled on this server; start it with --shared-memory"
            )
        return self._shared_memory

    def shared_memory_status(self, name: str = "") -> list[dict[str, Any]]:
        """The registered regions, or that one. A server that has no shared memory says so of a name; it has no regions."""
        return [] if self._shared_memory is None and not name else self.shared_memory.status(name)

    def no_cuda_shared_memory(self) -> UnsupportedError:
        """What registering such a region is answered with. That none is registered, and that all are forgotten, is true."""
        return UnsupportedError("CUDA shared memory is not supported by this server; use system shared memory or send the data")

    def settings(self, what: str) -> Settings:
        """The log and trace settings. Raises UnsupportedError unless the server was started to have them changed."""
        if self._settings is None:
            raise UnsupportedError(f"{what} is not enabled on this server; start it with --allow-settings")
        return self._settings

    def trace_settings(self, model: str) -> Settings:
        """The same for tracing, of all models or of one, which must serve."""
        settings = self.settings("trace")
        if model:
            self.repository.get(model)
        return settings

    def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions of this server."""
        optional = {
            "system_shared_memory": self.config.security.shared_memory,
            "logging": self._settings is not None,
        }
        extensions = [*EXTENSIONS, *(name for name, enabled in optional.items() if enabled)]
        return {"name": self.config.addresses.server_name, "version": __version__, "extensions": extensions}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """A model's versions, platform and tensors; -1 is the batch dimension."""
        model = self.repository.get(name, version)
        return {
            "name": model.name,
            "versions": self.repository.versions(name),
            "platform": _PLATFORMS.get(model.config.backend, model.config.backend),
            "inputs": [_tensor_metadata(model, tensor) for tensor in model.config.inputs],
            "outputs": [_tensor_metadata(model, tensor) for tensor in model.config.outputs],
        }

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """The model's configuration in Triton's field names, with every default spelled out."""
        model = self.repository.get(name, version)
        return {**config_json(model.config), "name": model.name}

    async def model_statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """The statistics extension's answer for one model, or one version, or for all when no name is given."""
        if version:
            models = [self.repository.get(name, version)]
        elif name:
            models = [self.repository.get(name, ready) for ready in self.repository.versions(name)]
        else:
            models = self.repository.ready_models()
        counted = await self.repository.statistics(models)
        return {
            "model_stats": [
                {"name": model.name, "version": model.version, **snapshot}
                for model, snapshot in zip(models, counted, strict=True)
            ],
        }

    async def live_stats(self) -> dict[str, Any]:
        """What every model does right now, for the console. Raises OverloadedError while there is no engine."""
        return await server_live_stats(self.repository, self.config, self._load.read())

    async def history(self) -> dict[str, Any]:
        """What every model did over the last hour and day. Raises OverloadedError while there is no engine."""
        return await self.repository.history()

    def model_plan(self, name: str, version: str = "") -> dict[str, Any]:
        """What a model computes with, every measurement behind that, and its proofs."""
        model = self.repository.get(name, version)
        if not isinstance(model, TensorModel):
            raise UnsupportedError(f"model '{name}' has no plan of its own")
        return {"model": model.name, "version": model.version, **model.account}

    async def preview(self, name: str, image: bytes, *, version: str = "") -> dict[str, Any]:
        """How one encoded image becomes the model's input, step by step."""
        with self.repository.use(name, version) as model:
            target = model.target if isinstance(model, (ClassifyModel, DecodeModel)) else model
            if not isinstance(target, TensorModel) or target.preprocessing is None:
                raise UnsupportedError(f"model '{name}' has no preprocessing for images")
            limits, pixels = self.config.limits, target.signature.takes_pixels
            draw = partial(preview, target.preprocessing, image, max_pixels=limits.max_pixels, takes_pixels=pixels)
            return {"model": model.name, "version": model.version, **await self.in_pool(draw)}

    async def load_model(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Load or renew a model; `parameters` may hold "config", JSON to use instead of its `config.pbtxt`. Returns once it
        serves. Raises as `ModelRepository.start_load` and its future do."""
        if files := [key for key in parameters if key.startswith("file:")]:
            if max(len(part.encode()) for part in files[0].removeprefix("file:").split("/")) > _LONGEST_NAME:  # Triton's words
                long = f"parameter '{files[0][:100]}' names a file in more than {_LONGEST_NAME} bytes"
                raise ExecutionError(f"failed to load '{name[:100]}', failed to poll from model repository: {long}")
            raise UnsupportedError(
                f"parameter '{files[0][:100]}': this server takes no files over the network; put them into the models folder"
            )
        config = parameters.get("config")
        if unknown := sorted(set(parameters) - {"config"}):
            raise InputError(f"unknown parameter '{unknown[0][:100]}'; load takes 'config'")
        if config is not None and not isinstance(config, str):
            raise InputError("parameter 'config' must be a string, a model configuration in JSON")
        await self.repository.load_model(name, config)

    async def unload_model(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Unload a model; returns once no new request finds it. `parameters` may hold "unload_dependents", true or false."""
        dependents = parameters.get("unload_dependents", False)
        if unknown := sorted(set(parameters) - {"unload_dependents"}):
            raise InputError(f"unknown parameter '{unknown[0][:100]}'; unload takes 'unload_dependents'")
        if not isinstance(dependents, bool):
            raise InputError("parameter 'unload_dependents' must be true or false")
        await self.repository.unload_model(name, dependents=dependents)

    async def infer(self, name: str, version: str, request: InferenceRequest) -> InferenceResponse:
        """Answer one request. Raises a RequestError that says what is wrong, or ExecutionError when the model failed."""
        with self.repository.use(name, version) as model:
            if request.shared_inputs or any(output.place for output in request.outputs or ()):
                return await self._infer_in_shared_memory(model, request)
            return await self._infer(model, request)

    async def _infer_in_shared_memory(self, model: Model, request: InferenceRequest) -> InferenceResponse:
        """Inputs are copied before the model runs, and outputs after: clients may change their memory at any moment."""
        begin, copied = time.monotonic(), False
        try:
            memory = self.shared_memory
            size = memory.size(request)
            with self.bytes.hold(size):
                each = _STRINGS_LONGER if any(tensor.datatype == "BYTES" for tensor in request.shared_inputs) else 1
                request.inputs += await self._copied(
                    size * each, lambda: [memory.read(tensor) for tensor in request.shared_inputs]
                )
                copied = True
                answer = await self._infer(model, request)
                places = {output.name: output.place for output in request.outputs or () if output.place}
                answer.outputs = await self._copied(
                    _LONG_COPY if many_strings(answer.outputs) else sum(tensor.data.nbytes for tensor in answer.outputs),
                    lambda: [
                        memory.write(tensor, places[tensor.name]) if tensor.name in places else tensor
                        for tensor in answer.outputs
                    ],
                )
                return answer
        except RequestError as error:
            if not copied:  # what comes as far as the model is counted there
                model.statistics.failed(nanoseconds(begin), failure(error))
            raise

    async def _copied(self, size: int, copy: Callable[[], T]) -> T:
        return copy() if size < _LONG_COPY else await self.in_pool(copy)

    async def _infer(self, model: Model, request: InferenceRequest) -> InferenceResponse:
        begin = time.monotonic()
        try:
            if request.raw is not None:
                request.inputs = [_raw_input(model, request.raw)]
            tensors, rows = model.check_inputs(request)
            model.check_outputs(request)
        except InputError as error:
            model.statistics.failed(nanoseconds(begin), failure(error))
            raise
        datatypes = {tensor.name: tensor.datatype for tensor in model.config.outputs}
        if isinstance(model, QueuedModel):
            arrays = dict(zip(model.output_names, await self._execution.tensors(model, tensors, rows, request), strict=True))
            arrays = {tensor: arrays[tensor] for tensor in datatypes}
        elif isinstance(model, EnsembleModel):
            arrays = await self._ensemble(model, tensors, rows, request, begin)
        else:
            arrays = await self._execution.composed(model, tensors[0], rows, request, begin)
        outputs = requested_outputs(request, arrays, datatypes, model.labels)
        if not model.config.max_batch_size:  # which ran as the only row of a batch
            outputs = [replace(tensor, data=tensor.data.reshape(tensor.shape[1:])) for tensor in outputs]
        return InferenceResponse(model=model.name, version=model.version, outputs=outputs, id=request.id)

    async def classify(
        self, name: str, image: bytes, *, version: str = "", count: int = 5, timeout: float | None = None
    ) -> dict[str, Any]:
        """The labels of one encoded image: the most probable ones, or those above their thresholds where several may hold."""
        if not 1 <= count <= 1000:
            raise InputError(f"k must be from 1 to 1000, got {count}")
        return await self._answered("classify", name, version, image, timeout, partial(classified, count=count), count)

    async def embed(self, name: str, image: bytes, *, version: str = "", timeout: float | None = None) -> dict[str, Any]:
        """The vector of one encoded image."""
        return await self._answered("embed", name, version, image, timeout, embedded)

    async def answer_image(self, name: str, image: bytes, *, count: int = 5, timeout: float | None = None) -> dict[str, Any]:
        """What `classify` says of an image, or where the model gives no class scores, `embed`."""
        model = self.repository.get(name)
        if isinstance(model, TensorModel) and image_routes(model.task) == ("embed",):
            return await self.embed(name, image, timeout=timeout)
        return await self.classify(name, image, count=count, timeout=timeout)

    async def fill(self, name: str, image: bytes, write: Callable[[Sequence[str], np.ndarray], Any]) -> Any:
        """What `write` makes of the labels and of the one row of scores that an encoded image has."""

        def read(task: Task, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
            if len(outputs) != 1:
                raise ExecutionError("has several outputs, and the route was proved of one")
            return {"answer": write(task.heads[0].labels, outputs[task.heads[0].output][0].reshape(-1))}

        return (await self._answered("classify", name, "", image, None, read))["answer"]

    async def _answered(
        self,
        route: str,
        name: str,
        version: str,
        image: bytes,
        timeout: float | None,
        read: Callable[[Task, Mapping[str, np.ndarray]], dict[str, Any]],
        count: int = 0,
    ) -> dict[str, Any]:
        with self.repository.use(name, version) as model:
            target = model.target if isinstance(model, (ClassifyModel, DecodeModel)) else model
            if not isinstance(target, TensorModel) or target.preprocessor is None:
                raise UnsupportedError(
                    f"model '{name}' has no preprocessing for images; send tensors to /v2/models/{name}/infer"
                )
            if why := not_answered(target.task, route, name):
                raise UnsupportedError(why)
            begin = time.monotonic()
            best = min(count, target.choices)
            outputs = await self._execution.images(target, [image], timeout, 0, best)
            if model is not target:
                model.statistics.composed(1, nanoseconds(begin))
            try:
                if best:
                    answer = chosen(target.task, outputs)
                else:
                    answer = read(target.task, dict(zip(target.output_names, outputs, strict=True)))
            except ExecutionError as error:
                raise ExecutionError(f"model '{name}' {error}") from None
            return {"model": model.name, "version": model.version, **answer}

    async def in_pool(self, work: Callable[[], T]) -> T:
        """Run something long, such as hashing megabytes, beside the event loop."""
        return await self._execution.in_pool(work)

    async def in_parser(self, work: Callable[[], T]) -> T:
        """The same for unpacking and parsing bodies, which never take the threads that images need."""
        return await self._execution.in_parser(work)

    def give_back_soon(self, size: int) -> None:
        """Have memory that a body of this size took returned to the system, if it is large, once for all that end at about this
        time."""
        if size > _LARGE_BODY and self._giving_back is None:
            self._giving_back = asyncio.get_running_loop().call_later(_GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        with contextlib.suppress(OverloadedError):  # others are parsed, and it is done after them
            self._parser.submit(_give_back)

    async def _ensemble(
        self, model: EnsembleModel, tensors: Sequence[Tensor], rows: int, request: InferenceRequest, begin: float
    ) -> dict[str, np.ndarray]:
        """An ensemble's outputs, as those of a model that takes batches have them."""

        async def infer(step: Step, part: InferenceRequest) -> InferenceResponse:
            with self.repository.use(step.model, step.version) as used:
                return await self._infer(used, part)

        allowed = self.config.batching.default_timeout_seconds if request.timeout is None else request.timeout
        try:
            arrays = await run_ensemble(model, tensors, infer, priority=request.priority, deadline=begin + allowed)
        except Exception as error:
            model.statistics.failed(nanoseconds(begin), failure(error))
            raise
        model.statistics.composed(rows, nanoseconds(begin))
        return arrays if model.config.max_batch_size else {name: array[None] for name, array in arrays.items()}


def _tensor_metadata(model: Model, tensor: ConfigTensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": model.whole(tensor.shape)}


def _raw_input(model: Model, body: bytes) -> Tensor:
    """A body that is one input's bytes: an image (or any one BYTES element), or whole rows of a tensor."""
    if len(model.config.inputs) != 1:
        raise InputError(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(model.config.inputs)} inputs in "
            f"'{model.name}' model configuration; send JSON"
        )
    declared = model.config.inputs[0]
    shape = model.whole(declared.shape)
    if declared.datatype == "BYTES":
        if any(size != 1 for size in declared.shape):
            raise InputError(f"For BYTE datatype raw input '{declared.name}', the model must have input shape [1]; send JSON")
        return Tensor(declared.name, "BYTES", bytes_array([body], [1] * len(shape)))
    if shape.count(-1) > 1:
        raise InputError(
            f"The shape of the raw input '{declared.name}' can not be deduced because there are more than one variable-sized "
            "dimension; send JSON"
        )
    size = math.prod(known for known in shape if known != -1) * np.dtype(DATATYPES[declared.datatype]).itemsize
    if not body or len(body) % size:
        raise InputError(f"a raw body for input '{declared.name}' must be a multiple of {size} bytes, got {len(body)}")
    whole = [len(body) // size if known == -1 else known for known in shape]
    return binary_to_tensor(declared.name, declared.datatype, whole, body)


_PLATFORMS = {"onnxruntime": "onnxruntime_onnx", "pytorch": "pytorch_libtorch"}
