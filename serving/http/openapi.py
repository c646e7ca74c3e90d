"""What /openapi.json says beyond what the handlers' signatures hold: bodies, answers, and every status with its meaning.

Handlers read and write bodies themselves, so FastAPI knows nothing of them and would list 422, which is never sent.
"""

from __future__ import annotations

from ..protocol.routes import ROUTES, Cost, Route
from ..protocol.schemas import SCHEMAS, Schema, component
from .hot_routes import HotApp

_MEANINGS = {
    400: "something in the request is wrong; the error says what was expected",
    401: "no token, or none that is known",
    403: "the token is for something else, or a web page of another site sent this",
    404: "there is no such model, version or region",
    408: "the request did not arrive in time",
    413: "over a limit",
    429: "this client sends more than it may",
    431: "the request's head is too long",
    500: "the model failed on it",
    501: "not supported, or not enabled on this server",
    503: "the queue is full, the deadline has passed, or the model or the server is not ready",
}
_ALWAYS = (400, 401, 403, 408, 431)
_OF_BODIES = (413, 503)
_OF_MODELS = (404, 503)
_OF_INFERENCE = (429, 500, 501)
_OF_CONTROL = (404, 501)


class DescribedApp(HotApp):
    """A `HotApp` of this server's routes that describes them fully."""

    def openapi(self) -> Schema:
        """The OpenAPI document."""
        document: Schema = super().openapi()
        if "Error" not in document.get("components", {}).get("schemas", {}):
            document["components"] = {"schemas": SCHEMAS}
            for route in ROUTES:
                if route.tag:
                    for path in route.paths:
                        _complete(document["paths"][path][route.methods.lower()], route, path)
        return document


def _complete(operation: Schema, route: Route, path: str) -> None:
    if route.body is not None:
        operation["requestBody"] = route.body
    operation["responses"] = {"200": route.answer or operation["responses"]["200"]} | {
        str(status): _error(route, status) for status in _statuses(route, path)
    }


def _statuses(route: Route, path: str) -> list[int]:
    found = {*_ALWAYS}
    if route.body is not None or route.cost is Cost.CONTROL:
        found |= {*_OF_BODIES}
    if "{model}" in path:
        found |= {*_OF_MODELS}
    if route.cost is Cost.INFERENCE:
        found |= {*_OF_INFERENCE}
    if route.cost is Cost.CONTROL:
        found |= {*_OF_CONTROL}
    if route.handler == "ready":
        found.add(503)
    return sorted(found)


def _error(route: Route, status: int) -> Schema:
    answer: Schema = {"description": _MEANINGS[status]}
    if not (status == 503 and route.handler == "ready"):
        answer["content"] = {"application/json": {"schema": component("Error")}}
    if status in (429, 503) and "content" in answer:
        answer["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return answer
