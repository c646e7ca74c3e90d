"""grpc.health.v1, which load balancers and Kubernetes ask and watch: the whole server's health, and that of each model."""
# ruff: noqa: N802 - the protocol names the methods

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ...errors import RequestError
from ..guard.access import Guard
from ..guard.rate_limit import client_of_peer
from ..plane.data_plane import DataPlane
from ..protocol.routes import SERVICE
from .methods import code_of, metadata_of

# A model's health is open to whoever may ask for it otherwise.
_MODEL_READY = f"/{SERVICE}/ModelReady"
# Anybody may watch, so that their number is bounded, and one client leaves others most of it.
_MAX_WATCHERS, _MAX_OF_ONE = 1024, 256

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Health by service: "" and the protocol's own name are the whole server, any other is the model of that name."""

    def __init__(self, plane: DataPlane, access: Guard | None) -> None:
        self._repository = plane.repository
        self._access = access
        self._watchers: dict[asyncio.Event, str] = {}
        self._stopping = False

    async def Check(self, request: Any, context: Any) -> Any:
        """The health of one service."""
        await self._check_access(request, context)
        status = self._status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service; ask for '', '{SERVICE}' or the name of a model")
        return _Status(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The health of one service, and again whenever it has changed; ends when the server stops."""
        await self._check_access(request, context)
        client = client_of_peer(context.peer())
        own = sum(one == client for one in self._watchers.values())
        if len(self._watchers) >= _MAX_WATCHERS or own >= _MAX_OF_ONE:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{own} calls of this client and {len(self._watchers)} in all watch already; at most {_MAX_OF_ONE} of one "
                f"client may, and {_MAX_WATCHERS} in all",
            )
        loop, changed, sent = asyncio.get_running_loop(), asyncio.Event(), None
        self._watchers[changed] = client
        try:
            with self._repository.notifications.listening(lambda: loop.call_soon_threadsafe(changed.set)):
                while True:
                    changed.clear()
                    status = self._status(request.service)
                    now = _Status.SERVICE_UNKNOWN if status is None else status
                    if now != sent:
                        sent = now
                        yield _Status(status=now)
                    if self._stopping:
                        return
                    await changed.wait()
        finally:
            del self._watchers[changed]

    def end(self) -> None:
        """End every `Watch`, or the server would wait for them."""
        self._stopping = True
        for changed in self._watchers:
            changed.set()

    def _status(self, service: str) -> Any:
        """None of a service that is unknown."""
        if service not in ("", SERVICE):
            if all(entry["name"] != service for entry in self._repository.index()):
                return None
            try:
                self._repository.get(service)
            except RequestError:
                return _Status.NOT_SERVING
        return _Status.SERVING if self._repository.ready else _Status.NOT_SERVING

    async def _check_access(self, request: Any, context: Any) -> None:
        if self._access is None or request.service in ("", SERVICE):
            return
        try:
            self._access.check_method(_MODEL_READY, metadata_of(context.invocation_metadata(), "authorization"))
        except RequestError as error:
            await context.abort(code_of(error), str(error))
