"""The ingress without Ray: an ASGI application that reads a request within limits and has somebody answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...errors import OverloadedError, RequestError
from ..config import ServeConfig
from ..guard.byte_budget import ByteBudget
from ..http.body import BodyReader
from ..http.errors import error_response, response_of
from ..protocol.routes import find_route
from .message import Call, Reply, call_of
from .routing import check_control, group_of

# How long a replica may take to answer that it is ready before the answer is that none is.
_READY_SECONDS = 5.0

Engine = Callable[[str, Call], Awaitable[Reply]]


class Relay:
    """Hands each request to `engine` with the tensor model it needs, "" where it needs none.

    `engine` raises a RequestError when nobody can answer now. Requests are given up after twice the server's own deadline.
    """

    def __init__(self, config: ServeConfig, groups: Mapping[str, str], engine: Engine) -> None:
        self._groups = groups
        self._engine = engine
        self._bodies = BodyReader(limit=config.limits.max_body_bytes, budget=ByteBudget(config.limits.max_inflight_bytes))
        self._body_seconds = config.limits.body_timeout_seconds
        self._patience = 2 * config.batching.default_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._response(scope, receive)
        except ClientDisconnect:
            return
        except RequestError as error:
            response = response_of(error)
        await response(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        method, path = scope["method"], scope["path"]
        route = find_route(path)
        probe = route.handler if route is not None and method == "GET" else ""
        if probe == "live":
            return JSONResponse({"live": True})
        check_control(method, path)
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await held.enter_async_context(self._bodies.read(Request(scope, receive)))
            except TimeoutError:
                return error_response(408, f"the body did not arrive within {self._body_seconds:g} s")
            call = call_of(scope, body)
            if probe == "ready":
                return await self._ready(call)
            try:
                async with asyncio.timeout(self._patience):
                    return _response_of(await self._engine(group_of(path, self._groups), call))
            except TimeoutError:
                raise OverloadedError(f"no replica has answered within {self._patience:g} s; try again later") from None

    async def _ready(self, call: Call) -> Response:
        """503 as one server answers it, also when there is no replica to ask."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                return _response_of(await self._engine("", call))
        except (TimeoutError, RequestError):
            return JSONResponse({"ready": False}, 503)


def _response_of(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    response.raw_headers = reply.headers
    return response
