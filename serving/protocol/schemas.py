"""What bodies and answers look like, in OpenAPI's words."""

from __future__ import annotations

from typing import Any

from .messages import DATATYPES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_BINARY: Schema = {"type": "string", "format": "binary"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


def component(name: str) -> Schema:
    """A reference to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    found: Schema = {"type": "object", "properties": {**required, **(optional or {})}}
    return {**found, "required": list(required)} if required else found


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _body(schema: Schema, *, required: bool = False) -> Schema:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _answer(schema: Schema) -> Schema:
    return {"description": "the answer", "content": {"application/json": {"schema": schema}}}


_DATATYPE: Schema = {"type": "string", "enum": list(DATATYPES)}
_PREDICTED = _list(_object({"label": {"type": ["string", "null"]}, "index": _COUNT, "probability": {"type": "number"}}))
_PLACE = {"shared_memory_region": _TEXT, "shared_memory_offset": _COUNT, "shared_memory_byte_size": _COUNT}
SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": {"type": "string", "minLength": 1}}),
    "ServerMetadata": _object({"name": _TEXT, "version": _TEXT, "extensions": _TEXTS}),
    "TensorMetadata": _object({"name": _TEXT, "datatype": _DATATYPE, "shape": _list({"type": "integer"})}),
    "ModelMetadata": _object(
        {
            "name": _TEXT,
            "versions": _TEXTS,
            "platform": _TEXT,
            "inputs": _list(component("TensorMetadata")),
            "outputs": _list(component("TensorMetadata")),
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
        {"model": _TEXT, "version": _TEXT},
        {
            "predictions": _PREDICTED,
            "task": {**_TEXT, "description": "multi-label, where all labels above their thresholds are given"},
            "heads": {
                "type": "object",
                "description": "of a model with several outputs of labels, by their names",
                "additionalProperties": _object({"predictions": _PREDICTED}, {"task": _TEXT}),
            },
        },
    ),
    "Embedding": _object(
        {"model": _TEXT, "version": _TEXT},
        {
            "embedding": _list({"type": "number"}),
            "embeddings": {
                "type": "object",
                "description": "of a model with several, by the names of its outputs",
                "additionalProperties": _list({"type": "number"}),
            },
        },
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

# Bodies of requests.
INDEX_BODY = _body(_object({}, {"ready": {"type": "boolean"}}))
LOAD_BODY = _body(_object({}, {"parameters": _object({}, {"config": {**_TEXT, "description": "a configuration in JSON"}})}))
UNLOAD_BODY = _body(_object({}, {"parameters": _object({}, {"unload_dependents": {"type": "boolean"}})}))
REGISTER_BODY = _body(
    _object({"key": _TEXT, "byte_size": {"type": "integer", "minimum": 1}}, {"offset": _COUNT}), required=True
)
LOG_SETTINGS_BODY = _body(component("LogSettings"))
TRACE_SETTINGS_BODY = _body(component("TraceSettings"))
INFERENCE_BODY: Schema = {
    "required": True,
    "content": {
        "application/json": {"schema": component("InferenceRequest")},
        "application/octet-stream": {"schema": _BINARY},
    },
}
IMAGE_BODY: Schema = {
    "required": True,
    "content": {"multipart/form-data": {"schema": _object({"file": _BINARY})}, "image/*": {"schema": _BINARY}},
}

# Answers with status 200.
DONE: Schema = {"description": "done"}
_TRUTH: Schema = {"type": "boolean"}
LIVE, READY = (_answer(_object({name: _TRUTH})) for name in ("live", "ready"))
MODEL_READY = _answer(_object({"name": _TEXT, "ready": _TRUTH}))
SERVER, METADATA, CONFIG, STATISTICS, INDEX, PREDICTIONS, EMBEDDING, LOG_SETTINGS, TRACE_SETTINGS = (
    _answer(component(name))
    for name in (
        "ServerMetadata", "ModelMetadata", "ModelConfig", "Statistics", "Index", "Predictions", "Embedding", "LogSettings",
        "TraceSettings",
    )
)  # fmt: skip
REGIONS = _answer(_list(component("Region")))
INFERENCE: Schema = {
    "description": "the answer",
    "content": {
        "application/json": {"schema": component("InferenceResponse")},
        "application/octet-stream": {"schema": _BINARY},
    },
    "headers": {
        "Inference-Header-Content-Length": {
            "description": "bytes of JSON before the binary tensors, where there are any",
            "schema": {"type": "integer"},
        }
    },
}
