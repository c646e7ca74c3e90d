"""What every gRPC call meets first: its id, the token check, reading its message, the byte budget, errors and the access log.

The methods behind it take and give protobuf messages and raise RequestErrors, which become gRPC's codes here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ...errors import InputError, OverloadedError, RequestError, TooLargeError
from ...runtime.artifact.triton_messages import service as pb
from ..guard.access import Guard
from ..guard.rate_limit import client_of_peer
from ..observe.logs import log_request, request_id, request_id_of
from ..observe.telemetry import Telemetry
from ..plane.data_plane import DataPlane
from ..protocol.routes import METHODS, SERVICE, Cost
from .arrivals import Arrivals
from .service import Service
from .stream import in_completion_order
from .turns import Turns
from .wire_limits import message_weight, without_raw

log = logging.getLogger("headrace.serving")

# HTTP statuses of RequestError as gRPC's codes.
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_INTERNAL = "internal error; the server's log says more"
# Requests of one stream that are answered at a time; the next is read when one of them is done.
_WINDOW = 64
_MAX_CONTROL_BYTES = 64 * 1024

Method = Callable[..., Awaitable[Message]]


def code_of(error: RequestError) -> grpc.StatusCode:
    """The gRPC code of an error."""
    return _CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT)


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets a call through to its method when `access` does; nothing of a rejected call's message is read."""

    def __init__(self, access: Guard) -> None:
        self._access = access

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """The method's own handler, or one that rejects the call."""
        details = handler_call_details
        try:
            self._access.check_method(details.method, metadata_of(details.invocation_metadata, "authorization"))
        except RequestError as error:
            code, text = code_of(error), str(error)

            async def reject(_: Any, context: Any) -> None:
                await context.abort(code, text)

            # A handler of streams rejects unary calls as well, and before their message arrived.
            return grpc.stream_stream_rpc_method_handler(reject)
        return await continuation(details)


class Methods:
    """Handlers for the protocol's methods. The one of streams, ModelStreamInfer, answers each of its requests as ModelInfer."""

    def __init__(self, plane: DataPlane, arrivals: Arrivals, turns: Turns, telemetry: Telemetry | None = None) -> None:
        self._plane = plane
        self._arrivals = arrivals
        self._turns = turns
        self._service = Service(plane)
        self._telemetry = telemetry

    def handlers(self) -> dict[str, Any]:
        """The handlers of `inference.GRPCInferenceService` by method, from the protocol's own description."""
        described = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        handlers = {}
        for method in described.methods:
            if method.name == "ModelStreamInfer":
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(self._stream)
            else:
                call = self._unary(method.name, GetMessageClass(method.input_type), getattr(self._service, method.name))
                # As if streams of one message: a handler of those is called before that has arrived. Clients see no difference.
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(call)
        return handlers

    def _unary(self, name: str, request_class: Any, method: Method) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def call(_: Any, context: Any) -> bytes:
            client = client_of_peer(context.peer())
            data = await self._arrivals.read(context, client)
            own_id = _begin_call(context)
            try:
                return await self._answer(name, request_class, method, data, own_id, client, context)
            except RequestError as error:
                if isinstance(error, OverloadedError):
                    pause = ("grpc-retry-pushback-ms", str(error.retry_after * 1000))
                    context.set_trailing_metadata((("x-request-id", own_id), pause))
                code, text = code_of(error), str(error)
            except Exception as error:  # whatever nobody foresaw ends this call only, and its details stay in the log
                log.error("a gRPC call failed", exc_info=error)
                code, text = grpc.StatusCode.INTERNAL, _INTERNAL
            await context.abort(code, text)
            raise AssertionError("abort raises")

        return call

    async def _answer(
        self, name: str, request_class: Any, method: Method, data: bytes, own_id: str, client: str, context: Any
    ) -> bytes:
        """One message's answer: counted against the client's rate, traced, and with its line in the access log."""
        cost = METHODS[f"/{SERVICE}/{name}"].cost
        if cost is Cost.INFERENCE:
            self._plane.count_request(client)
        if self._telemetry is None:
            traced: Any = nullcontext(lambda *_: None)
        else:
            traced = self._telemetry.grpc_call(name, context.invocation_metadata(), context.peer())
        begin, code, received, sent, model = time.perf_counter(), "INTERNAL", len(data), 0, ""
        with traced as ended:
            try:
                if len(data) > _MAX_CONTROL_BYTES and cost is not Cost.INFERENCE:
                    raise TooLargeError(
                        f"the message has {len(data):,} bytes; this method takes at most {_MAX_CONTROL_BYTES:,}"
                    )
                with self._plane.bytes.hold(len(data), client), ExitStack() as held:
                    answering = method
                    if len(data) > _MAX_CONTROL_BYTES:  # of an inference, so a ModelInferRequest
                        most = self._plane.config.limits.max_json_values
                        weight, data, raw = await self._plane.in_parser(partial(_open, data, max_values=most))
                        held.enter_context(self._plane.bytes.hold(weight, client))
                        answering = partial(method, raw=raw)
                        await self._turns.wait()
                    try:
                        request = request_class.FromString(data)
                    except DecodeError:
                        raise InputError(f"the message is not a valid {request_class.DESCRIPTOR.name}") from None
                    if len(data) > _MAX_CONTROL_BYTES:
                        self._turns.rest()
                    model = getattr(request, "model_name", "")
                    answer = (await answering(request)).SerializeToString()
                code, sent = "OK", len(answer)
                return answer
            except RequestError as error:
                code = code_of(error).name
                raise
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            finally:
                ended(code, model)
                self._plane.give_back_soon(received)
                if self._plane.config.observe.access_log:
                    log_request("grpc", name, code, model=model, begin=begin, received=received, sent=sent, request=own_id)

    async def _stream(self, _: Any, context: Any) -> AsyncIterator[bytes]:
        own_id, client = _begin_call(context), client_of_peer(context.peer())

        async def requests() -> AsyncIterator[bytes]:
            while (data := await self._turns.read(context)) is not grpc.aio.EOF:
                yield data

        async def answer(data: bytes) -> bytes:
            given = ""  # by the client, so that it knows which of its requests an error is about

            async def infer(request: Any, raw: Sequence[memoryview] | None = None) -> Message:
                nonlocal given
                given = request.id
                response = await self._service.ModelInfer(request, raw)
                response.parameters["triton_final_response"].bool_param = True
                return pb.ModelStreamInferResponse(infer_response=response)

            try:
                return await self._answer("ModelStreamInfer", pb.ModelInferRequest, infer, data, own_id, client, context)
            except RequestError as error:
                text = str(error)
            except Exception as error:  # as for a call of its own
                log.error("a request of a gRPC stream failed", exc_info=error)
                text = _INTERNAL
            failed = pb.ModelStreamInferResponse(error_message=text, infer_response=pb.ModelInferResponse(id=given))
            return failed.SerializeToString()

        async for message in in_completion_order(requests(), answer, window=_WINDOW):
            yield message


def _open(data: bytes, *, max_values: int) -> tuple[int, bytes, list[memoryview]]:
    """A long ModelInferRequest: about what it weighs beyond its own bytes, itself without its raw contents, and those."""
    weight = message_weight(data, pb.ModelInferRequest.DESCRIPTOR, max_values=max_values)
    return weight, *without_raw(data)


def _begin_call(context: Any) -> str:
    """The call's id, for its log records and its caller."""
    own_id = request_id_of(next(iter(metadata_of(context.invocation_metadata(), "x-request-id")), None))
    request_id.set(own_id)
    context.set_trailing_metadata((("x-request-id", own_id),))
    return own_id


def metadata_of(metadata: Any, name: str) -> list[str]:
    """All values of one name in a call's metadata."""
    return [value for key, value in metadata or () if key == name and isinstance(value, str)]
