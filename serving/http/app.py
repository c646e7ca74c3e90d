"""The HTTP front end: the Open Inference Protocol with Triton's extensions, and a route for images."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..._version import __version__
from ...errors import RequestError
from ..models.kept_routes import KeptRoutes
from ..plane.data_plane import DataPlane
from ..protocol.routes import KEPT, ROUTES, Cost
from .errors import error_response, response_of
from .handlers import Handlers
from .instance_handlers import InstanceHandlers
from .kept_handlers import KeptHandlers
from .openapi import DescribedApp

_CLIENT_GONE = 499  # nginx's status for it; nobody reads it


def create_app(plane: DataPlane, kept: KeptRoutes | None = None) -> FastAPI:
    """The application that serves one data plane, and the routes that are kept of migrated applications."""
    app = DescribedApp(
        title="Headrace",
        version=__version__,
        description="Image classification over the Open Inference Protocol (KServe v2) with Triton's extensions.",
        openapi_url=None,  # a handler has it, which keeps its text, and /docs, whose files need no internet
        redirect_slashes=False,  # the redirect would name whatever host the request's header claims
    )
    _add_error_handlers(app)
    platforms = InstanceHandlers(plane)
    handlers: dict[str, object] = {"": Handlers(plane), **dict.fromkeys(plane.config.addresses.apis, platforms)}
    if kept is not None:
        handlers[KEPT] = KeptHandlers(plane, kept)
    for route in ROUTES:
        if route.api not in handlers:
            continue
        for path in route.paths if route.handler else ():
            app.add_api_route(
                path,
                getattr(handlers[route.api], route.handler),
                methods=route.methods.split(),
                name=route.name or route.handler,
                tags=[route.tag] if route.tag else None,
                include_in_schema=bool(route.tag),
            )
    hot = {path for route in ROUTES if route.cost is Cost.INFERENCE for path in route.paths}
    app.serve_directly([route for route in app.routes if isinstance(route, APIRoute) and route.path in hot])
    return app


def _add_error_handlers(app: FastAPI) -> None:
    """Every error is {"error": "..."}; unforeseen ones show nothing of the inside."""

    async def request_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        return response_of(error)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return error_response(404, "this server has no such path; /docs lists its paths")
        if error.status_code != 405:
            return error_response(error.status_code, error.detail, dict(error.headers or {}))
        # The methods of all rows that fit the path: the router names those of the first only.
        allowed = ", ".join(
            method for route in ROUTES if route.pattern.fullmatch(request.scope["path"]) for method in route.methods.split()
        )
        return error_response(405, f"{request.method} is not allowed at this path, {allowed} is", {"Allow": allowed})

    async def validation_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return error_response(400, f"{' '.join(str(part) for part in first['loc'])}: {first['msg']}")

    async def client_gone(_: Request, __: Exception) -> Response:
        return Response(status_code=_CLIENT_GONE)

    async def unforeseen(_: Request, __: Exception) -> Response:
        return error_response(500, "internal error; the server's log says more")

    app.add_exception_handler(RequestError, request_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(ClientDisconnect, client_gone)
    app.add_exception_handler(Exception, unforeseen)
