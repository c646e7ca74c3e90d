"""grpcio's private parts that this server leans on: all of them are here, and tests/serving/grpc/test_library.py holds them.

The loop of a grpc.aio server decodes the names of methods that it does not know, and ends for ever over one that is not UTF-8,
which anybody may send. So it never gets such calls: they are answered where it would fetch them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

# What a call of an unknown method is answered with, by its metadata.
Unknown = Callable[[Any], tuple[grpc.StatusCode, str]]


class Server(_server.Server):  # type: ignore[misc]
    """A grpc.aio server whose methods must all be registered, as generated code and the library's own services do."""

    def __init__(self, *, interceptors: Sequence[Any], options: Sequence[tuple[str, Any]], unknown: Unknown) -> None:
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_worth_logging)
        self._loop = asyncio.get_running_loop()
        self._server = _Core(self._loop, None, (), tuple(interceptors), tuple(options), None)
        self._server.unknown = unknown


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """The server below, whose calls of registered methods never come here."""

    unknown: Unknown

    async def _request_call(self) -> None:
        """Wait for calls of other methods and answer them, for ever; raises the library's error when the server stops."""
        answering: set[asyncio.Task[None]] = set()
        while True:
            state = await super()._request_call()
            task = asyncio.ensure_future(self._answer(state))
            answering.add(task)
            task.add_done_callback(answering.discard)

    async def _answer(self, state: Any) -> None:
        context = cygrpc._ServicerContext(state, None, None, asyncio.get_running_loop())
        with contextlib.suppress(grpc.aio.BaseError):  # ends with one in any case; another when the client has gone
            await context.abort(*self.unknown(context.invocation_metadata()))


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """For the library's log: false for the tracebacks that clients can make it write as often as they like, over metadata that
    are no text and over connections that break in the midst of a call, with the bytes that broke them."""
    text = str(record.msg)
    return not ("ExecuteBatchError raised in core" in text or text.startswith("Invalid encoding on"))
