"""What every HTTP request meets first, on every port: its id, the token check, and the access log."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import RequestError
from ..guard.access import Guard
from ..guard.hosts import Hosts, check_page
from ..observe.logs import log_request, request_id, request_id_of
from .errors import response_of

# A page of any site that is open in a browser could use, or unload, what serves on the same machine.
_HARMLESS = ("GET", "HEAD", "OPTIONS")


class Edge:
    """An ASGI application around another, which is only called for requests that `access` and `hosts` let through (None: all).
    Nothing of a rejected request's body is read."""

    def __init__(self, app: ASGIApp, *, access: Guard | None = None, hosts: Hosts | None = None, log: bool = False) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        headers = scope["headers"]
        given = next((value.decode("latin-1") for name, value in headers if name == b"x-request-id"), None)
        own_id = request_id_of(given)
        request_id.set(own_id)
        begin, status, got, sent = time.perf_counter(), 0, 0, 0

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            return message

        async def answer(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", own_id.encode())]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            if self._hosts is not None:
                self._hosts.check([value for name, value in headers if name == b"host"])
            if scope["method"] not in _HARMLESS:
                check_page(headers)
            if self._access is not None:
                tokens = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
                self._access.check_path(scope["path"], tokens)
        except RequestError as error:
            await response_of(error)(scope, receive, answer)
        else:
            await self._app(scope, counted if self._log else receive, answer)
        finally:
            if self._log:
                log_request(
                    "http",
                    f"{scope['method']} {scope['raw_path'].decode('ascii', 'backslashreplace')}",
                    status,
                    model=scope.get("path_params", {}).get("model", ""),
                    begin=begin,
                    received=got,
                    sent=sent,
                    request=own_id,
                )
