"""HTTP routes of the extensions that reach beyond one request: shared memory, log and trace settings. Handlers only convert."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from ...errors import InputError
from ..plane.data_plane import DataPlane
from ..protocol.json_limits import parse_json
from .body import BodyReader

__all__ = ["add_control_routes"]


def add_control_routes(app: FastAPI, plane: DataPlane, bodies: BodyReader) -> None:
    """The routes of system and CUDA shared memory, logging and tracing; each is refused unless the server enables it."""

    async def read(request: Request) -> Any:
        async with bodies.read(request) as body:
            return parse_json(body, max_depth=plane.config.limits.max_json_depth) if body.strip() else {}

    @app.get("/v2/systemsharedmemory/status", tags=["shared memory"])
    @app.get("/v2/systemsharedmemory/region/{region}/status", tags=["shared memory"])
    async def status(region: str = "") -> Response:
        """The registered regions, or one of them."""
        return JSONResponse(plane.shared_memory.status(region))

    @app.post("/v2/systemsharedmemory/region/{region}/register", tags=["shared memory"])
    async def register(request: Request, region: str) -> Response:
        """Register part of a shared memory object: {"key": ..., "offset": ..., "byte_size": ...}."""
        memory = plane.shared_memory
        asked = await read(request)
        if not isinstance(asked, dict):
            raise InputError("the request must be a JSON object")
        memory.register(region, asked.get("key"), asked.get("byte_size"), asked.get("offset", 0))
        return Response()

    @app.post("/v2/systemsharedmemory/unregister", tags=["shared memory"])
    @app.post("/v2/systemsharedmemory/region/{region}/unregister", tags=["shared memory"])
    async def unregister(region: str = "") -> Response:
        """Forget one region, or all."""
        plane.shared_memory.unregister(region)
        return Response()

    @app.api_route("/v2/cudasharedmemory/{action}", methods=["GET", "POST"], include_in_schema=False)
    @app.api_route("/v2/cudasharedmemory/region/{region}/{action}", methods=["GET", "POST"], include_in_schema=False)
    async def cuda_shared_memory(action: str, region: str = "") -> Response:
        raise plane.no_cuda_shared_memory()

    @app.get("/v2/logging", tags=["settings"])
    async def log_settings() -> Response:
        """The log settings."""
        return JSONResponse(plane.settings("logging").log.to_json())

    @app.post("/v2/logging", tags=["settings"])
    async def change_log_settings(request: Request) -> Response:
        """Change the log settings that are named."""
        settings = plane.settings("logging")
        return JSONResponse(settings.log.update(await read(request)))

    @app.get("/v2/trace/setting", tags=["settings"])
    @app.get("/v2/models/{model}/trace/setting", tags=["settings"])
    async def trace_settings(model: str = "") -> Response:
        """The trace settings: off."""
        settings = plane.settings("trace")
        if model:
            plane.repository.get(model)
        return JSONResponse(settings.trace())

    @app.post("/v2/trace/setting", tags=["settings"])
    @app.post("/v2/models/{model}/trace/setting", tags=["settings"])
    async def change_trace_settings(request: Request, model: str = "") -> Response:
        """Refused unless it changes nothing: this server writes no trace files."""
        settings = plane.settings("trace")
        if model:
            plane.repository.get(model)
        return JSONResponse(settings.trace(await read(request)))
