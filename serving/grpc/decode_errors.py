"""Messages that cannot be decoded are the caller's error in the library's own services too: health and reflection.

The library answers them as a failure of the server, names classes of its inside, and writes a traceback into the log, so that
anybody could fill that. Methods of the protocol read their messages themselves, in methods.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError


class DecodeErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Reads messages in place of the library, where it would; what cannot be read ends the call with INVALID_ARGUMENT."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The method's handler around which messages are bytes."""
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler

        async def read(data: bytes, context: Any) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not valid")
                raise AssertionError("abort raises") from None

        async def unary(data: bytes, context: Any) -> Any:
            return await handler.unary_unary(await read(data, context), context)

        async def answers(data: bytes, context: Any) -> AsyncIterator[Any]:
            async for answer in handler.unary_stream(await read(data, context), context):
                yield answer

        async def stream(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            requests = (await read(data, context) async for data in messages)
            async for answer in handler.stream_stream(requests, context):
                yield answer

        serializer = handler.response_serializer
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(unary, response_serializer=serializer)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(answers, response_serializer=serializer)
        assert handler.stream_stream, "no service here takes a stream and gives one answer"
        return grpc.stream_stream_rpc_method_handler(stream, response_serializer=serializer)
