"""FastAPI with a short way for the routes that carry the load.

Routing, validating and wrapping one request takes FastAPI several times as many steps as the rest of a small request, so what
is plainly an inference or a classification goes to its handler directly. Everything else, and whatever is odd about such a
request, goes the usual way: the same handlers stand there too, errors are worded there, and /docs describes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...errors import RequestError

# What the declaration of `Handlers.classify` lets through: k from 1 to 1000, a time above 0 and up to 3,600,000 ms.
_QUERY = re.compile(rb"(?:k=(?P<k>[1-9][0-9]{0,2}|1000))?(?:(?:^|&)timeout_ms=(?P<timeout>[1-9][0-9]{0,5}(?:\.[0-9]{1,9})?))?")


class HotApp(FastAPI):
    """An application some of whose routes are reached directly by POST.

    Middleware added to the application itself does not see those requests; what must see all stands around it.
    """

    _direct: Sequence[APIRoute] = ()

    def serve_directly(self, routes: Sequence[APIRoute]) -> None:
        """Take the short way to these routes, which the application has already."""
        self._direct = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = self._match(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        scope["route"], scope["path_params"], options = found
        request = Request(scope, receive, send)
        try:
            response = await scope["route"].endpoint(request, **scope["path_params"], **options)
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

    def _match(self, scope: Scope) -> tuple[APIRoute, dict[str, str], dict[str, Any]] | None:
        """The route with its parameters, and those of the query."""
        if self.root_path or scope.get("root_path"):
            return None
        for route in self._direct:
            if match := route.path_regex.fullmatch(scope["path"]):
                options = _options(scope["query_string"], {parameter.name for parameter in route.dependant.query_params})
                return None if options is None else (route, match.groupdict(), options)
        return None


def _options(query: bytes, known: Set[str]) -> dict[str, Any] | None:
    """The options in a query; None when the router must look at them."""
    if not query:
        return {}
    match = _QUERY.fullmatch(query) if known else None
    if match is None:
        return None
    options: dict[str, Any] = {}
    if match["k"]:
        options["k"] = int(match["k"])
    if match["timeout"]:
        options["timeout_ms"] = float(match["timeout"])
    return options if options.keys() <= known else None
