"""The ingress without Ray: an ASGI application that reads a request within limits and has somebody answer it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from fastapi import Request
from starlette.requests import ClientDisconnect

from ...errors import OverloadedError, RequestError
from ..config import ServeConfig
from ..guard.byte_budget import ByteBudget
from ..http.body import BodyReader
from ..protocol.routes import find_route
from .message import Call, Message, Receive, Reply, Send, call_of
from .routing import check_control, family_of

__all__ = ["Relay"]

# How long a replica may take to say that it is ready before the answer is that none is.
_READY_SECONDS = 5.0

Engine = Callable[[str, Call], Awaitable[Reply]]


class Relay:
    """Hands each request to `engine` with the tensor model it needs, "" where it needs none.

    `engine` raises a RequestError when nobody can answer now. Requests are given up after twice the server's own deadline.
    """

    def __init__(self, config: ServeConfig, families: Mapping[str, str], engine: Engine) -> None:
        self._families = families
        self._engine = engine
        self._bodies = BodyReader(limit=config.limits.max_body_bytes, budget=ByteBudget(config.limits.max_inflight_bytes))
        self._body_seconds = config.limits.body_timeout_seconds
        self._patience = 2 * config.batching.default_timeout_seconds

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            reply = await self._reply(scope, receive)
        except ClientDisconnect:
            return
        except RequestError as error:
            reply = _refusal(error.status, str(error), error)
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Message, receive: Receive) -> Reply:
        method, path = scope["method"], scope["path"]
        route = find_route(path)
        probe = route.handler if route is not None and method == "GET" else ""
        if probe == "live":
            return Reply(200, [(b"content-length", b"0")], b"")
        check_control(method, path)
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await held.enter_async_context(self._bodies.read(Request(scope, receive)))  # type: ignore[arg-type]
            except TimeoutError:
                return _refusal(408, f"the body did not arrive within {self._body_seconds:g} s")
            call = call_of(scope, body)
            if probe == "ready":
                return await self._ready(call)
            try:
                async with asyncio.timeout(self._patience):
                    return await self._engine(family_of(path, self._families), call)
            except TimeoutError:
                raise OverloadedError(f"no replica has answered within {self._patience:g} s; try again later") from None

    async def _ready(self, call: Call) -> Reply:
        """503 without a body, as one server says it, also when there is no replica to ask."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                return await self._engine("", call)
        except (TimeoutError, RequestError):
            return Reply(503, [(b"content-length", b"0")], b"")


def _refusal(status: int, message: str, error: RequestError | None = None) -> Reply:
    body = json.dumps({"error": message}, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, OverloadedError):
        headers.append((b"retry-after", str(error.retry_after).encode()))
    return Reply(status, headers, body)
