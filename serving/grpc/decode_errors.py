"""Messages that cannot be decoded are the caller's error in the library's own services too: health and reflection.

The library answers them as a failure of the server, names classes of its inside, and writes a traceback into the log, so that
anybody could fill that. Methods of the protocol read their messages themselves, in methods.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ..guard.rate_limit import client_of_peer
from .arrivals import Arrivals

_MAX_BYTES = 64 * 1024


class DecodeErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Reads messages in place of the library, where it would; what cannot be read ends the call with INVALID_ARGUMENT, and what
    is long, which no message of these services is, with RESOURCE_EXHAUSTED."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The method's handler around which messages are bytes."""
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler

        async def read(data: bytes, context: Any) -> Any:
            if len(data) > _MAX_BYTES:
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"the message has {len(data):,} bytes; this method takes at most {_MAX_BYTES:,}",
                )
            try:
                return handler.request_deserializer(data)
            except DecodeError:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not valid")
                raise AssertionError("abort raises") from None

        async def first(context: Any) -> bytes:
            return await self._arrivals.read(context, client_of_peer(context.peer()))

        async def unary(_: Any, context: Any) -> Any:
            return await handler.unary_unary(await read(await first(context), context), context)

        async def answers(_: Any, context: Any) -> AsyncIterator[Any]:
            async for answer in handler.unary_stream(await read(await first(context), context), context):
                yield answer

        async def stream(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            requests = (await read(data, context) async for data in messages)
            async for answer in handler.stream_stream(requests, context):
                yield answer

        serializer = handler.response_serializer
        if handler.unary_unary:
            return grpc.stream_unary_rpc_method_handler(unary, response_serializer=serializer)
        if handler.unary_stream:
            return grpc.stream_stream_rpc_method_handler(answers, response_serializer=serializer)
        assert handler.stream_stream, "no service here takes a stream and gives one answer"
        return grpc.stream_stream_rpc_method_handler(stream, response_serializer=serializer)
