"""The deployment that Ray Serve's proxies talk to: tokens are checked and bodies bounded before anything goes further."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import ExecutionError, OverloadedError
from ..config import ServeConfig
from ..guard.access import Access
from ..guard.hosts import known_hosts
from ..http.edge import Edge
from .message import Call, Reply
from .relay import Relay

log = logging.getLogger("headrace.serving")


class Ingress:
    """One replica of the ingress, to be deployed by Ray Serve; `engines` is the application of the engines."""

    def __init__(self, config: ServeConfig, access: Access | None, groups: Mapping[str, str], engines: str) -> None:
        from ray import serve

        self._handle = serve.get_app_handle(engines)
        self._handles: dict[str, Any] = {}
        hosts = known_hosts(config.addresses.host, config.security.allowed_hosts, tokens=access is not None)
        self._app = Edge(Relay(config, groups, self._ask), access=access, hosts=hosts)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        return _Answer(self._app)

    async def _ask(self, group: str, call: Call) -> Reply:
        """Have a replica answer that holds the model, or another that loads it.

        Raises OverloadedError when there is none, or it was lost meanwhile.
        """
        from ray.exceptions import RayError, RayTaskError
        from ray.serve.exceptions import BackPressureError, RayServeException

        if group not in self._handles:
            self._handles[group] = self._handle.options(multiplexed_model_id=group)
        answer = self._handles[group].answer.remote(call)
        try:
            reply: Reply = await answer
        except asyncio.CancelledError:
            answer.cancel()
            raise
        except BackPressureError:
            raise OverloadedError("every replica is busy and its queue is full; try again later") from None
        except RayTaskError as error:
            log.error("a replica failed on a request", exc_info=error)
            raise ExecutionError("internal error; the replica's log says more") from None
        except (RayServeException, RayError) as error:
            log.warning("no replica answered a request: %s", error)
            raise OverloadedError("the replica that worked on this request was lost; send it again") from None
        return reply


class _Answer(Response):
    """An answer that is not known yet. Ray Serve sends a response by calling it, as the ASGI application that it is."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def without_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Ray Serve's proxy gives every answer the id that it gave the request.
                message["headers"] = [(name, value) for name, value in message["headers"] if name != b"x-request-id"]
            await send(message)

        await self._app(scope, receive, without_id)
