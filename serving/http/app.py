"""The HTTP front end: the Open Inference Protocol with Triton's extensions, and a route for images. Handlers only convert."""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ... import __version__
from ...errors import OverloadedError, RequestError
from ..console.pages import add_console
from ..guard.rate_limit import client_of_address
from ..plane.data_plane import DataPlane
from ..protocol.codec import control_parameters, decode_request, encode_response
from ..protocol.json_limits import parse_json
from .body import BodyReader, decompress, header, header_length, image_of_form, while_connected
from .control import add_control_routes
from .openapi import DescribedApp

__all__ = ["create_app"]

log = logging.getLogger("headrace.serving")

# Longer JSON is parsed beside the event loop; shorter is done before another thread would have begun.
_LONG_JSON = 64 * 1024
# Below this, packing an answer costs more than it saves.
_WORTH_PACKING = 16 * 1024
_CLIENT_GONE = 499  # nginx's status for it; nobody reads it

# json.dumps makes an encoder at every call that is not its default.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_IMAGE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "string", "format": "binary"}},
                    "required": ["file"],
                }
            },
            "image/*": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_INFER_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def create_app(plane: DataPlane) -> FastAPI:
    """The application that serves one data plane."""
    config = plane.config
    app = DescribedApp(
        title="Headrace",
        version=__version__,
        description="Image classification over the Open Inference Protocol (KServe v2) with Triton's extensions.",
        redirect_slashes=False,  # the redirect would name whatever host the request's header claims
    )
    bodies = BodyReader(limit=config.limits.max_body_bytes, budget=plane.bytes)
    _add_error_handlers(app)

    @app.get("/v2", tags=["server"])
    async def server_metadata() -> Response:
        """Name, version and protocol extensions."""
        return JSONResponse(plane.server_metadata())

    @app.get("/v2/health/live", tags=["server"])
    async def live() -> Response:
        """200 while the process answers."""
        return Response()

    @app.get("/v2/health/ready", tags=["server"])
    async def ready() -> Response:
        """200 once every model was tried and at least one serves; 503 before, and while shutting down."""
        return Response(status_code=200 if plane.repository.ready else 503)

    @app.post("/v2/repository/index", tags=["repository"])
    async def index(request: Request) -> Response:
        """All models with their state and, for those not served, the reason."""
        async with bodies.read(request) as body:
            asked = parse_json(body) if body.strip() else {}
        return JSONResponse(plane.repository.index(ready_only=isinstance(asked, dict) and asked.get("ready") is True))

    @app.post("/v2/repository/models/{model}/load", tags=["repository"])
    async def load(request: Request, model: str) -> Response:
        """Load or renew a model; answered once it serves. Only under explicit model control."""
        async with bodies.read(request) as body:
            parameters = await asyncio.to_thread(control_parameters, body, max_depth=config.limits.max_json_depth)
        await plane.load_model(model, parameters)
        return Response()

    @app.post("/v2/repository/models/{model}/unload", tags=["repository"])
    async def unload(request: Request, model: str) -> Response:
        """Unload a model; answered once no new request finds it. Only under explicit model control."""
        async with bodies.read(request) as body:
            parameters = await asyncio.to_thread(control_parameters, body, max_depth=config.limits.max_json_depth)
        await plane.unload_model(model, parameters)
        return Response()

    @app.get("/v2/models/stats", tags=["models"])
    async def all_statistics() -> Response:
        """Statistics of all models."""
        return JSONResponse(await plane.model_statistics())

    @app.get("/v2/models/{model}", tags=["models"])
    @app.get("/v2/models/{model}/versions/{version}", tags=["models"])
    async def model_metadata(model: str, version: str = "") -> Response:
        """A model's versions and tensors."""
        return JSONResponse(plane.model_metadata(model, version))

    @app.get("/v2/models/{model}/ready", tags=["models"])
    @app.get("/v2/models/{model}/versions/{version}/ready", tags=["models"])
    async def model_ready(model: str, version: str = "") -> Response:
        """200 when the model serves; otherwise an error that says why not."""
        plane.repository.get(model, version)
        return Response()

    @app.get("/v2/models/{model}/config", tags=["models"])
    @app.get("/v2/models/{model}/versions/{version}/config", tags=["models"])
    async def model_config(model: str, version: str = "") -> Response:
        """The model's configuration in Triton's form."""
        return JSONResponse(plane.model_config(model, version))

    @app.get("/v2/models/{model}/stats", tags=["models"])
    @app.get("/v2/models/{model}/versions/{version}/stats", tags=["models"])
    async def model_statistics(model: str, version: str = "") -> Response:
        """The model's statistics."""
        return JSONResponse(await plane.model_statistics(model, version))

    @app.post("/v2/models/{model}/infer", tags=["inference"], openapi_extra=_INFER_BODY)
    @app.post("/v2/models/{model}/versions/{version}/infer", tags=["inference"], openapi_extra=_INFER_BODY)
    async def infer(request: Request, model: str, version: str = "") -> Response:
        """Tensors in, tensors out: JSON, or JSON followed by binary tensors (Inference-Header-Content-Length)."""
        plane.count_request(_client(request))
        plane.repository.get(model, version)
        length = header_length(request)
        async with bodies.read(request) as sent:
            body, encoding = sent, request.headers.get("content-encoding", "")
            if encoding not in ("", "identity"):
                body = await plane.in_pool(partial(decompress, sent, encoding, config.limits.max_decompressed_bytes))
            if (len(body) if length is None else length) > _LONG_JSON:
                message = await plane.in_pool(partial(decode_request, body, length, max_depth=config.limits.max_json_depth))
            else:
                message = decode_request(body, length, max_depth=config.limits.max_json_depth)
            answer = await while_connected(request, plane.infer(model, version, message))
            parts, json_length = encode_response(answer, message)
        return _packed(request, parts, json_length)

    @app.post("/v1/classify/{model}", tags=["inference"], openapi_extra=_IMAGE_BODY)
    async def classify(
        request: Request,
        model: str,
        k: Annotated[int, Query(ge=1, le=1000, description="how many labels")] = 5,
        timeout_ms: Annotated[float | None, Query(gt=0, le=3_600_000, description="answer within so many milliseconds")] = None,
    ) -> Response:
        """The most probable labels of an image: its bytes as the body, or one file of a multipart form."""
        plane.count_request(_client(request))
        plane.repository.get(model)
        async with bodies.read(request) as body:
            form = header(request, b"content-type").lower().startswith(b"multipart/")
            image = await image_of_form(request, body) if form else body
            timeout = None if timeout_ms is None else timeout_ms / 1000
            answer = await while_connected(request, plane.classify(model, image, count=k, timeout=timeout))
            return Response(_to_json(answer), media_type="application/json")

    add_control_routes(app, plane, bodies)
    add_console(app, plane)
    app.serve_directly(infer=infer, classify=classify)
    return app


def _client(request: Request) -> str:
    client = request.scope.get("client")
    return client_of_address(client[0]) if client else ""


def _packed(request: Request, parts: list[bytes], json_length: int | None) -> Response:
    """The infer answer, compressed where the client asks for it and it is long enough to gain from that."""
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    headers = {} if json_length is None else {"Inference-Header-Content-Length": str(json_length)}
    accepted = {item.partition(";")[0].strip() for item in request.headers.get("accept-encoding", "").lower().split(",")}
    encoding = next((known for known in ("gzip", "deflate") if known in accepted), None)
    if encoding and len(body) >= _WORTH_PACKING:
        packer = zlib.compressobj(level=1, wbits=31 if encoding == "gzip" else 15)
        body = packer.compress(body) + packer.flush()
        headers["Content-Encoding"] = encoding
    return Response(body, headers=headers, media_type="application/json" if json_length is None else "application/octet-stream")


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    # What is quoted may hold halves of surrogate pairs, which JSON can spell and UTF-8 cannot.
    text = message.encode("utf-8", "replace").decode()
    return JSONResponse({"error": text}, status_code=status, headers=headers)


def _add_error_handlers(app: FastAPI) -> None:
    """Every error is {"error": "..."}; those nobody foresaw say nothing of the inside."""

    async def request_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        headers = {"Retry-After": str(error.retry_after)} if isinstance(error, OverloadedError) else None
        return _error(error.status, str(error), headers)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        known = {404: "there is nothing at this path; /docs lists what there is", 405: f"{request.method} is not allowed here"}
        return _error(error.status_code, known.get(error.status_code, error.detail), dict(error.headers or {}))

    async def validation_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return _error(400, f"{' '.join(str(part) for part in first['loc'])}: {first['msg']}")

    async def client_gone(_: Request, __: Exception) -> Response:
        return Response(status_code=_CLIENT_GONE)

    async def unforeseen(_: Request, __: Exception) -> Response:
        return _error(500, "internal error; the server's log says more")

    app.add_exception_handler(RequestError, request_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(ClientDisconnect, client_gone)
    app.add_exception_handler(Exception, unforeseen)
