"""The HTTP front end: the Open Inference Protocol with Triton's extensions, and a route for images.

An application of its own rather than a framework's: the table of routes says it all, and its one look-up decides who may call,
what is traced, and who answers. Routing, validating and wrapping a request took FastAPI several times as many steps as the rest
of a small request.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import RequestError
from ..plane.data_plane import DataPlane
from ..protocol.routes import ROUTES, Route, find_route
from .errors import error_response, response_of
from .handlers import Handlers

_CLIENT_GONE = 499  # nginx's status for it; nobody reads it


def create_app(plane: DataPlane) -> ASGIApp:
    """What serves one data plane. Every error is {"error": "..."}; unforeseen ones show nothing of the inside."""
    handlers = Handlers(plane)
    by_route = {route: getattr(handlers, route.handler) for route in ROUTES if route.handler}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            route = _route(scope["method"], scope["path"])
            # What stands around, such as the access log, finds these in the scope.
            scope["route"], scope["path_params"] = route, route.parameters(scope["path"])
            response: Response = await by_route[route](Request(scope, receive, send), **scope["path_params"])
        except RequestError as error:
            response = response_of(error)
        except HTTPException as error:
            response = error_response(error.status_code, error.detail, dict(error.headers or {}))
        except ClientDisconnect:
            response = Response(status_code=_CLIENT_GONE)
        except Exception:
            await error_response(500, "internal error; the server's log says more")(scope, receive, send)
            raise  # to the server, which logs it
        await response(scope, receive, send)

    return app


def _route(method: str, path: str) -> Route:
    """The row that answers. Raises HTTPException."""
    route = find_route(path)
    if route is not None and route.handler and method in route.allowed:
        return route
    rows = [row for row in ROUTES if row.handler and row.pattern.fullmatch(path)]
    if not rows:
        raise HTTPException(404, "this server has no such path; /docs lists its paths")
    if (row := next((row for row in rows if method in row.allowed), None)) is not None:
        return row
    allowed = {"Allow": ", ".join(sorted({name for row in rows for name in row.allowed}))}
    raise HTTPException(405, f"{method} is not allowed at this path; /docs lists the methods", allowed)
