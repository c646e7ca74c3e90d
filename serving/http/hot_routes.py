"""FastAPI with a short way for the two routes that carry the load.

Routing, validating and wrapping one request takes FastAPI several times as many steps as the rest of a small request, so what
is plainly an inference or a classification goes to its handler directly. Everything else, and whatever is odd about such a
request, goes the usual way: the same handlers stand there too, errors are worded there, and /docs describes them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...errors import RequestError

__all__ = ["HotApp"]

Message = MutableMapping[str, Any]
Handler = Callable[..., Awaitable[Response]]

_INFER = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
_CLASSIFY = re.compile(r"/v1/classify/(?P<model>[^/]+)")
# What the handler's own declaration lets through: k from 1 to 1000, a time above 0 and up to 3,600,000 ms.
_QUERY = re.compile(rb"(?:k=(?P<k>[1-9][0-9]{0,2}|1000))?(?:(?:^|&)timeout_ms=(?P<timeout>[1-9][0-9]{0,5}(?:\.[0-9]{1,9})?))?")


class HotApp(FastAPI):
    """An application whose handlers `infer(request, model, version)` and `classify(request, model, k, timeout_ms)` may be
    reached directly.

    Middleware added to the application itself does not see those requests; what must see all stands around it.
    """

    _infer: Handler | None = None
    _classify: Handler | None = None

    def serve_directly(self, *, infer: Handler, classify: Handler) -> None:
        """Take the short way to these handlers, which are routes of the application already."""
        self._infer = infer
        self._classify = classify

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answer one request."""
        found = self._match(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await super().__call__(scope, receive, send)
            return
        handler, arguments = found
        scope["app"] = self
        scope["path_params"] = {name: value for name, value in arguments.items() if name in ("model", "version")}
        request = Request(scope, receive, send)
        try:
            response = await handler(request, **arguments)
        except (RequestError, ClientDisconnect) as error:
            kind = RequestError if isinstance(error, RequestError) else ClientDisconnect
            response = await self._failed(kind, request, error)
        except Exception as error:
            response = await self._failed(Exception, request, error)
            await response(scope, receive, send)
            raise
        await response(scope, receive, send)

    async def _failed(self, kind: type[Exception], request: Request, error: Exception) -> Response:
        answer: Response = await self.exception_handlers[kind](request, error)  # type: ignore[misc]
        return answer

    def _match(self, scope: Message) -> tuple[Handler, dict[str, Any]] | None:
        if self._infer is None or self._classify is None or self.root_path or scope.get("root_path"):
            return None
        path, query = scope["path"], scope["query_string"]
        if not query and (match := _INFER.fullmatch(path)):
            return self._infer, {name: value for name, value in match.groupdict().items() if value is not None}
        if match := _CLASSIFY.fullmatch(path):
            asked = _QUERY.fullmatch(query)
            if asked is None:
                return None
            arguments: dict[str, Any] = match.groupdict()
            if asked["k"]:
                arguments["k"] = int(asked["k"])
            if asked["timeout"]:
                arguments["timeout_ms"] = float(asked["timeout"])
            return self._classify, arguments
        return None
