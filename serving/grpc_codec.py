"""The protocol's protobuf messages to the data plane's, and back. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from ..errors import InputError, UnsupportedError
from .codec import binary_to_tensor, tensor_to_binary
from .messages import DATATYPES, InferenceRequest, InferenceResponse, RequestedOutput, Tensor, bytes_array, parse_parameters

__all__ = ["control_parameters", "decode_infer", "encode_infer", "fill"]

# Which field of InferTensorContents carries a datatype; FP16 and BF16 have none and go as raw contents.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def decode_infer(message: Any) -> InferenceRequest:
    """Read a ModelInferRequest. Raises InputError naming the field that is wrong."""
    priority, timeout, _ = parse_parameters(_parameters(message.parameters))
    raw = list(message.raw_input_contents)
    if raw and len(raw) != len(message.inputs):
        raise InputError(
            f"raw_input_contents has {len(raw)} entries for {len(message.inputs)} inputs; give one for each, or none"
        )
    if not message.inputs:
        raise InputError("'inputs' must name at least one tensor")
    for side, names in (
        ("inputs", [item.name for item in message.inputs]),
        ("outputs", [item.name for item in message.outputs]),
    ):
        if len(set(names)) != len(names):
            raise InputError(f"'{side}' names a tensor twice")
    inputs = [_decode_input(item, raw[number] if raw else None) for number, item in enumerate(message.inputs)]
    outputs = [_decode_output(item) for item in message.outputs] or None
    return InferenceRequest(inputs=inputs, outputs=outputs, id=message.id, priority=priority, timeout=timeout)


def encode_infer(response: InferenceResponse) -> Any:
    """A ModelInferResponse with raw contents."""
    message = pb.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    for tensor in response.outputs:
        message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.raw_output_contents.append(tensor_to_binary(tensor))
    return message


def control_parameters(message: Any) -> dict[str, Any]:
    """The parameters of a load or unload request, by name."""
    return _parameters(message.parameters)


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    """Set a message from the data plane's plain values, whose names are the protocol's; returns it."""
    from google.protobuf import json_format

    return json_format.ParseDict(dict(values), message)


def _decode_input(item: Any, raw: bytes | None) -> Tensor:
    if item.datatype not in DATATYPES:
        raise InputError(f"input '{item.name}': datatype must be one of {', '.join(DATATYPES)}, got {item.datatype[:50]!r}")
    shape = list(item.shape)
    if any(size < 0 for size in shape) or len(shape) > 16:
        raise InputError(f"input '{item.name}': shape must hold non-negative integers, got {shape[:16]}")
    if "shared_memory_region" in item.parameters:
        raise UnsupportedError(
            f"input '{item.name}': shared memory is not enabled on this server; send the data in the request"
        )
    if raw is not None:
        if item.HasField("contents"):
            raise InputError(f"input '{item.name}': give either 'contents' or raw_input_contents, not both")
        return binary_to_tensor(item.name, item.datatype, shape, raw)
    field = _CONTENTS.get(item.datatype)
    if field is None:
        raise InputError(f"input '{item.name}': {item.datatype} must be sent in raw_input_contents")
    filled = [described.name for described, _ in item.contents.ListFields()]
    if filled not in ([], [field]):
        raise InputError(f"input '{item.name}': {item.datatype} belongs in contents.{field}, got {', '.join(filled)}")
    values = getattr(item.contents, field)
    if len(values) != math.prod(shape):
        raise InputError(f"input '{item.name}': shape {shape} takes {math.prod(shape)} elements, got {len(values)}")
    return Tensor(item.name, item.datatype, _array(item.name, item.datatype, shape, values))


def _array(name: str, datatype: str, shape: list[int], values: Iterable[Any]) -> np.ndarray:
    if datatype == "BYTES":
        return bytes_array(list(values), shape)
    try:
        return np.array(values, dtype=DATATYPES[datatype]).reshape(shape)
    except OverflowError:
        limits = np.iinfo(DATATYPES[datatype])
        raise InputError(f"input '{name}': {datatype} goes from {limits.min} to {limits.max}") from None


def _decode_output(item: Any) -> RequestedOutput:
    parameters = _parameters(item.parameters)
    if "shared_memory_region" in parameters:
        raise UnsupportedError(f"output '{item.name}': shared memory is not enabled on this server")
    count = parameters.get("classification", 0)
    if type(count) is not int or count < 0:
        raise InputError(f"output '{item.name}': 'classification' must be a non-negative integer")
    return RequestedOutput(item.name, count, True)


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("parameter_choice") or "int64_param") for name, value in parameters.items()}
