"""The gRPC front end: `inference.GRPCInferenceService` over the same data plane as HTTP. Methods only convert."""
# ruff: noqa: N802 - the protocol names the methods

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from ..errors import PenstockError, RequestError
from .config_json import config_message
from .dataplane import DataPlane
from .grpc_codec import control_parameters, decode_infer, encode_infer, fill
from .grpc_health import health_handler
from .rate_limit import client_of_peer

__all__ = ["GrpcServer"]

log = logging.getLogger("penstock.serving")

# How long calls are gathered before the server stops, and how long it then takes for clients to hear of that.
_LAST_CALL_SECONDS, _GOODBYE_SECONDS = 0.1, 0.05

# HTTP statuses of RequestError as gRPC's codes.
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    500: grpc.StatusCode.INTERNAL,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class GrpcServer:
    """A grpc.aio server of one data plane, on the running event loop. Several processes listen on one port when `shared`."""

    def __init__(self, plane: DataPlane, *, shared: bool = False) -> None:
        limit = plane.config.max_body_bytes
        self._last_call = _LastCall()
        self._server = grpc.aio.server(
            interceptors=[self._last_call],
            options=[
                ("grpc.so_reuseport", int(shared)),  # or a second server would take half of the requests, silently
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", plane.config.max_header_bytes),
            ],
        )
        stubs.add_GRPCInferenceServiceServicer_to_server(_Service(plane), self._server)
        known = ("", "inference.GRPCInferenceService")
        self._server.add_generic_rpc_handlers([health_handler(lambda name: plane.repository.ready if name in known else None)])

    def bind(self, host: str, port: int) -> int:
        """Take the port; the one that was taken is returned. Raises PenstockError when it is in use."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise PenstockError(
                f"cannot listen on {address}; choose another with --grpc-port, or 0 for any free one"
            ) from error

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Take no more calls and finish those that run, within `grace` seconds."""
        await self._last_call.gather()
        stopping = asyncio.ensure_future(self._server.stop(grace))
        await asyncio.sleep(_GOODBYE_SECONDS)
        self._last_call.release()
        await stopping


class _LastCall(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Holds calls back while the server stops, to be answered once every client knows not to send another on its connection.

    The library cancels calls that arrive while it tells clients so, and a client cannot know whether such a call has run. Held
    calls keep clients that send one after the other from sending any at that moment.
    """

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        await self._free.wait()
        return await continuation(details)

    async def gather(self) -> None:
        """Let the next calls of all busy clients arrive."""
        self._free.clear()
        await asyncio.sleep(_LAST_CALL_SECONDS)

    def release(self) -> None:
        """Answer those that were held back."""
        self._free.set()


class _Service(stubs.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._plane.repository.ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        try:
            self._plane.repository.get(request.name, request.version)
        except RequestError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return fill(pb.ServerMetadataResponse(), self._plane.server_metadata())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        return await _answered(
            context, lambda: fill(pb.ModelMetadataResponse(), self._plane.model_metadata(request.name, request.version))
        )

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        def answer() -> Any:
            model = self._plane.repository.get(request.name, request.version)
            return pb.ModelConfigResponse(config=config_message(model.config, model.name))

        return await _answered(context, answer)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        async def answer() -> Any:
            return fill(pb.ModelStatisticsResponse(), await self._plane.model_statistics(request.name, request.version))

        return await _awaited(context, answer)

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        return fill(pb.RepositoryIndexResponse(), {"models": self._plane.repository.index(ready_only=request.ready)})

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        async def answer() -> Any:
            await self._plane.load_model(request.model_name, control_parameters(request))
            return pb.RepositoryModelLoadResponse()

        return await _awaited(context, answer)

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        async def answer() -> Any:
            await self._plane.unload_model(request.model_name, control_parameters(request))
            return pb.RepositoryModelUnloadResponse()

        return await _awaited(context, answer)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        async def answer() -> Any:
            self._plane.count_request(client_of_peer(context.peer()))
            self._plane.repository.get(request.model_name, request.model_version)
            return encode_infer(await self._plane.infer(request.model_name, request.model_version, decode_infer(request)))

        return await _awaited(context, answer)


async def _answered(context: Any, answer: Callable[[], Any]) -> Any:
    async def awaitable() -> Any:
        return answer()

    return await _awaited(context, awaitable)


async def _awaited(context: Any, answer: Callable[[], Awaitable[Any]]) -> Any:
    """The answer, or the call aborted with the error's code and message; details nobody foresaw stay in the log."""
    try:
        return await answer()
    except RequestError as error:
        await context.abort(_CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT), str(error))
    except Exception as error:
        log.error("a gRPC call failed", exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "internal error; the server's log says more")
