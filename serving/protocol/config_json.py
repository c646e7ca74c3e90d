"""A model's configuration as JSON and as the protocol's message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.artifact.model_config import ModelConfig


def config_json(config: ModelConfig) -> dict[str, Any]:
    """Triton's JSON: protobuf's own writes 64-bit integers as strings, Triton's clients expect numbers."""
    from ...runtime.artifact.triton_messages import model_config as schema

    converted: dict[str, Any] = _with_numbers(dict(config.message), schema.ModelConfig.DESCRIPTOR)
    return converted


def config_message(config: ModelConfig, name: str) -> Any:
    """A `ModelConfig` message."""
    from google.protobuf import json_format

    from ...runtime.artifact.triton_messages import model_config as schema

    message = json_format.ParseDict(dict(config.message), schema.ModelConfig())
    message.name = name
    return message


def _with_numbers(data: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    fields = {field.name: field for field in descriptor.fields}
    converted: dict[str, Any] = {}
    for name, value in data.items():
        field = fields[name]
        convert = _converter(field)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            convert_value = _converter(field.message_type.fields_by_name["value"])
            converted[name] = {key: convert_value(item) for key, item in value.items()}
        elif isinstance(value, list):
            converted[name] = [convert(item) for item in value]
        else:
            converted[name] = convert(value)
    return converted


def _converter(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return lambda value: _with_numbers(value, field.message_type)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return int
    return lambda value: value
