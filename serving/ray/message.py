"""What goes between the ingress and a replica: a whole request, and its whole answer.

Ray carries them by Python's own serialization between processes of one cluster, which trust each other. What a client sent is
in there as bytes, copied on the way and never taken apart before the data plane does it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Scope

from ..observe.logs import request_id

Headers = list[tuple[bytes, bytes]]

log = logging.getLogger("headrace.serving")

# Who may call is decided before; the token need not travel.
_KEPT_BACK = (b"authorization",)


class Call(NamedTuple):
    """One HTTP request with its body. `path` is percent-decoded, `raw_path` as it was sent."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    body: bytes
    client: tuple[str, int] | None
    request_id: str


class Reply(NamedTuple):
    """One HTTP answer."""

    status: int
    headers: Headers
    body: bytes


def call_of(scope: Scope, body: bytes) -> Call:
    """The request of an ASGI scope, whose body was read."""
    client = scope.get("client")
    return Call(
        method=scope["method"],
        path=scope["path"],
        raw_path=scope.get("raw_path") or scope["path"].encode(),
        query=scope.get("query_string", b""),
        headers=[(bytes(name), bytes(value)) for name, value in scope["headers"] if name not in _KEPT_BACK],
        body=body,
        client=(client[0], client[1]) if client else None,
        request_id=request_id.get(),
    )


async def respond(app: ASGIApp, call: Call) -> Reply:
    """What an ASGI application answers. Cancelling this is how it learns that the client went away."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": call.method,
        "path": call.path,
        "raw_path": call.raw_path,
        "query_string": call.query,
        "root_path": "",
        "headers": call.headers,
        "client": call.client,
        "server": None,
    }
    request_id.set(call.request_id)
    unread, status, headers, parts = True, 0, Headers(), list[bytes]()

    async def receive() -> Message:
        nonlocal unread
        if not unread:
            await asyncio.get_running_loop().create_future()  # nobody leaves here: see above
        unread = False
        return {"type": "http.request", "body": call.body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception as error:  # it was answered with status 500 before it came here
        if not status:
            raise
        log.error("a request failed", exc_info=error)
    return Reply(status, headers, b"".join(parts))
