"""What /openapi.json says beyond what the handlers' signatures tell: bodies, answers, and every status with its meaning.

Handlers read and write bodies themselves, so FastAPI knows nothing of them and would announce 422, which is never sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..protocol.messages import DATATYPES
from .hot_routes import HotApp

__all__ = ["DescribedApp"]

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    found: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    return {**found, "required": list(required)} if required else found


def _of(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_DATATYPE: Schema = {"type": "string", "enum": list(DATATYPES)}
_PLACE = {"shared_memory_region": _TEXT, "shared_memory_offset": _COUNT, "shared_memory_byte_size": _COUNT}
_SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": {"type": "string", "minLength": 1}}),
    "ServerMetadata": _object({"name": _TEXT, "version": _TEXT, "extensions": _TEXTS}),
    "TensorMetadata": _object({"name": _TEXT, "datatype": _DATATYPE, "shape": _list({"type": "integer"})}),
    "ModelMetadata": _object(
        {
            "name": _TEXT,
            "versions": _TEXTS,
            "platform": _TEXT,
            "inputs": _list(_of("TensorMetadata")),
            "outputs": _list(_of("TensorMetadata")),
        }
    ),
    "ModelConfig": {"type": "object", "description": "Triton's ModelConfig, every default spelled out."},
    "Statistics": _object({"model_stats": _list(_object({"name": _TEXT, "version": _TEXT}))}),
    "Index": _list(_object({"name": _TEXT, "version": _TEXT, "state": _TEXT, "reason": _TEXT})),
    "InferenceRequest": _object(
        {
            "inputs": _list(
                _object(
                    {"name": _TEXT, "datatype": _DATATYPE, "shape": _list(_COUNT)},
                    {
                        "data": {"type": "array", "description": "flat or nested; not with binary_data_size"},
                        "parameters": _object({}, {"binary_data_size": _COUNT, **_PLACE}),
                    },
                )
            )
        },
        {
            "id": _TEXT,
            "outputs": _list(
                _object(
                    {"name": _TEXT},
                    {"parameters": _object({}, {"classification": _COUNT, "binary_data": {"type": "boolean"}, **_PLACE})},
                )
            ),
            "parameters": _object(
                {},
                {
                    "priority": {**_COUNT, "description": "1 is served first"},
                    "timeout": {**_COUNT, "description": "microseconds; 0 is the server's own"},
                    "binary_data_output": {"type": "boolean"},
                },
            ),
        },
    ),
    "InferenceResponse": _object(
        {
            "model_name": _TEXT,
            "model_version": _TEXT,
            "outputs": _list(_object({"name": _TEXT, "datatype": _DATATYPE, "shape": _list(_COUNT)})),
        },
        {"id": _TEXT},
    ),
    "Predictions": _object(
        {
            "model": _TEXT,
            "version": _TEXT,
            "predictions": _list(
                _object({"label": {"type": ["string", "null"]}, "index": _COUNT, "probability": {"type": "number"}})
            ),
        }
    ),
    "Region": _object({"name": _TEXT, "key": _TEXT, "offset": _COUNT, "byte_size": _COUNT}),
    "LogSettings": _object(
        {},
        {
            **{name: {"type": "boolean"} for name in ("log_info", "log_warning", "log_error")},
            "log_verbose_level": _COUNT,
            "log_format": _TEXT,
        },
    ),
    "TraceSettings": {"type": "object", "description": "Can be read; nothing of it can be changed."},
}
_SCHEMAS_OF_BODIES: dict[str, Schema] = {
    "/v2/repository/index": _object({}, {"ready": {"type": "boolean"}}),
    "/load": _object({}, {"parameters": _object({}, {"config": {**_TEXT, "description": "a configuration in JSON"}})}),
    "/unload": _object({}, {"parameters": _object({}, {"unload_dependents": {"type": "boolean"}})}),
    "/register": _object({"key": _TEXT, "byte_size": {"type": "integer", "minimum": 1}}, {"offset": _COUNT}),
    "/logging": _of("LogSettings"),
    "/trace/setting": _of("TraceSettings"),
}
# By the end of the path; the first that fits counts. None is an answer without a body.
_ANSWERS: dict[str, Schema | None] = {
    "/health/live": None,
    "/health/ready": None,
    "/ready": None,
    "/load": None,
    "/unload": None,
    "/register": None,
    "/unregister": None,
    "/infer": _of("InferenceResponse"),
    "/classify/{model}": _of("Predictions"),
    "/config": _of("ModelConfig"),
    "/stats": _of("Statistics"),
    "/repository/index": _of("Index"),
    "/systemsharedmemory/status": _list(_of("Region")),
    "/region/{region}/status": _list(_of("Region")),
    "/logging": _of("LogSettings"),
    "/trace/setting": _of("TraceSettings"),
    "/v2": _of("ServerMetadata"),
    "/{model}": _of("ModelMetadata"),
    "/{version}": _of("ModelMetadata"),
}
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
            _complete(document)
        return document


def _complete(document: Schema) -> None:
    document["components"] = {"schemas": _SCHEMAS}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            ending = next((ending for ending in _SCHEMAS_OF_BODIES if path.endswith(ending)), None)
            if method == "post" and ending is not None:
                content = {"application/json": {"schema": _SCHEMAS_OF_BODIES[ending]}}
                operation["requestBody"] = {"required": ending == "/register", "content": content}
            if path.endswith("/infer"):
                operation["requestBody"]["content"]["application/json"] = {"schema": _of("InferenceRequest")}
            said = operation["responses"].get("200", {"description": "the answer"})
            operation["responses"] = {"200": _answer(path, said)} | {
                str(status): _error(path, status) for status in _statuses(path)
            }


def _statuses(path: str) -> Iterator[int]:
    found = {*_ALWAYS}
    inference = path.endswith("/infer") or "/classify/" in path
    control = any(part in path for part in ("sharedmemory", "/logging", "/trace/", "/load", "/unload"))
    if inference or control or path.endswith("/index"):
        found |= {*_OF_BODIES}
    if "{model}" in path:
        found |= {*_OF_MODELS}
    if inference:
        found |= {*_OF_INFERENCE}
    if control:
        found |= {*_OF_CONTROL}
    if path.endswith("/health/ready"):
        found.add(503)
    yield from sorted(found)


def _answer(path: str, said: Schema) -> Schema:
    """What a path answers; of one that is not known here, what its route has said."""
    ending = next((ending for ending in _ANSWERS if path.endswith(ending)), None)
    if ending is None:
        return said
    schema = _ANSWERS[ending]
    answer: Schema = {"description": "done" if schema is None else "the answer"}
    if schema is not None:
        answer["content"] = {"application/json": {"schema": schema}}
    if path.endswith("/infer"):
        answer["content"]["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        length = {"description": "bytes of JSON before the binary tensors, where there are any", "schema": {"type": "integer"}}
        answer["headers"] = {"Inference-Header-Content-Length": length}
    return answer


def _error(path: str, status: int) -> Schema:
    answer: Schema = {"description": _MEANINGS[status]}
    if not (status == 503 and path.endswith("/health/ready")):
        answer["content"] = {"application/json": {"schema": _of("Error")}}
    if status in (429, 503) and "content" in answer:
        answer["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return answer
