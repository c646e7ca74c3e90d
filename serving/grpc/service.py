"""The methods of `inference.GRPCInferenceService`: they only convert messages, the data plane knows what they mean."""
# ruff: noqa: N802 - the protocol names the methods

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import RequestError
from ...runtime.artifact.triton_messages import service as pb
from ..plane.data_plane import DataPlane
from ..protocol.config_json import config_message
from ..protocol.messages import many_strings
from .codec import (
    decode_infer,
    encode_infer,
    fill,
    log_settings_message,
    parameters_of,
    read_settings,
    trace_settings_message,
)

# Numbers that came one by one, and strings, are made to tensors beside the event loop, unless they are few.
_LONG_MESSAGE = 64 * 1024


class Service:
    """The protocol's methods, messages in and out. RequestErrors become gRPC's codes in methods.py."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def ServerLive(self, request: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._plane.repository.ready)

    async def ModelReady(self, request: Any) -> Any:
        try:
            self._plane.repository.get(request.name, request.version)
        except RequestError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def ServerMetadata(self, request: Any) -> Any:
        return fill(pb.ServerMetadataResponse(), self._plane.server_metadata())

    async def ModelMetadata(self, request: Any) -> Any:
        return fill(pb.ModelMetadataResponse(), self._plane.model_metadata(request.name, request.version))

    async def ModelConfig(self, request: Any) -> Any:
        model = self._plane.repository.get(request.name, request.version)
        return pb.ModelConfigResponse(config=config_message(model.config, model.name))

    async def ModelStatistics(self, request: Any) -> Any:
        return fill(pb.ModelStatisticsResponse(), await self._plane.model_statistics(request.name, request.version))

    async def RepositoryIndex(self, request: Any) -> Any:
        return fill(pb.RepositoryIndexResponse(), {"models": self._plane.repository.index(ready_only=request.ready)})

    async def RepositoryModelLoad(self, request: Any) -> Any:
        await self._plane.load_model(request.model_name, parameters_of(request.parameters))
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        await self._plane.unload_model(request.model_name, parameters_of(request.parameters))
        return pb.RepositoryModelUnloadResponse()

    async def ModelInfer(self, request: Any, raw: Sequence[memoryview] | None = None) -> Any:
        """The answer. `raw` are the raw contents of a message that was read without them."""
        self._plane.repository.get(request.model_name, request.model_version)
        size = request.ByteSize() + sum(map(len, raw or ()))
        if size > _LONG_MESSAGE and any(item.HasField("contents") or item.datatype == "BYTES" for item in request.inputs):
            decoded = await self._plane.in_parser(partial(decode_infer, request, raw))
        else:
            decoded = decode_infer(request, raw)
        answer = await self._plane.infer(request.model_name, request.model_version, decoded)
        if many_strings(answer.outputs):
            return await self._plane.in_parser(partial(encode_infer, answer))
        return encode_infer(answer)

    async def SystemSharedMemoryStatus(self, request: Any) -> Any:
        regions = {region["name"]: region for region in self._plane.shared_memory_status(request.name)}
        return fill(pb.SystemSharedMemoryStatusResponse(), {"regions": regions})

    async def SystemSharedMemoryRegister(self, request: Any) -> Any:
        self._plane.shared_memory.register(request.name, request.key, request.byte_size, request.offset)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(self, request: Any) -> Any:
        self._plane.shared_memory.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def CudaSharedMemoryStatus(self, request: Any) -> Any:
        return pb.CudaSharedMemoryStatusResponse()

    async def CudaSharedMemoryRegister(self, request: Any) -> Any:
        raise self._plane.no_cuda_shared_memory()

    async def CudaSharedMemoryUnregister(self, request: Any) -> Any:
        return pb.CudaSharedMemoryUnregisterResponse()

    async def LogSettings(self, request: Any) -> Any:
        settings = self._plane.settings("logging").log
        changes = read_settings(request.settings)
        return log_settings_message(settings.update(changes) if changes else settings.to_json())

    async def TraceSetting(self, request: Any) -> Any:
        settings = self._plane.trace_settings(request.model_name)
        changes = {name: list(setting.value) or None for name, setting in request.settings.items()}
        return trace_settings_message(settings.trace(changes))
