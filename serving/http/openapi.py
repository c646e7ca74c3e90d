"""What /openapi.json and /docs say: each route with its parameters, bodies, answers, and every status with its meaning."""

from __future__ import annotations

import html
import inspect
import json
import re
from typing import Any

from ..._version import __version__
from ..protocol.routes import ROUTES, Cost, Route
from ..protocol.schemas import SCHEMAS, Schema, component

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


def document(handlers: type) -> Schema:
    """The document of all routes with a tag; what they do is said by the docstrings of their handlers."""
    paths: Schema = {}
    for route in ROUTES:
        for path in route.paths if route.tag else ():
            about = inspect.getdoc(getattr(handlers, route.handler))
            paths.setdefault(path, {})[route.methods.lower()] = _operation(route, path, about or "")
    about = "Image classification over the Open Inference Protocol (KServe v2) with Triton's extensions."
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "description": about, "version": __version__},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _operation(route: Route, path: str, about: str) -> Schema:
    own = [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in re.findall(r"{(\w+)}", path)]
    return {
        "tags": [route.tag],
        "summary": route.handler.replace("_", " ").capitalize(),
        "description": about,
        "operationId": re.sub(r"\W", "_", f"{route.handler}{path}_{route.methods.lower()}"),
        "parameters": [*own, *route.query],
        **({} if route.body is None else {"requestBody": route.body}),
        "responses": {"200": route.answer or {"description": "the answer", "content": {"application/json": {}}}}
        | {str(status): _error(route, status) for status in _statuses(route, path)},
    }


def page(described: Schema) -> str:
    """The document as a page for people, which needs no script and nothing from elsewhere."""
    parts = [
        f"<h2><code>{method.upper()} {path}</code></h2><p>{html.escape(operation['description'])}</p>"
        + "".join(_listed(what, operation[what]) for what in ("parameters", "requestBody", "responses") if operation.get(what))
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    ]
    title = f"{described['info']['title']} {described['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<h1>{title}</h1><p>{described['info']['description']} <a href='openapi.json'>openapi.json</a></p>{''.join(parts)}"
        f"<h2>Schemas</h2>{''.join(_listed(*schema) for schema in described['components']['schemas'].items())}</html>"
    )


def _listed(what: str, value: Any) -> str:
    return f"<details><summary>{what}</summary><pre>{html.escape(json.dumps(value, indent=2))}</pre></details>"


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
