"""The protocol's protobuf messages to the data plane's, and back. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import InputError
from ...runtime.artifact.triton_messages import service as pb
from ..protocol.codec import binary_to_tensor, tensor_to_binary
from ..protocol.messages import DATATYPES, InferenceRequest, InferenceResponse, SharedInput, Tensor, bytes_array
from ..protocol.request_fields import check_names, read_output, read_parameters, read_place, read_tensor

_PIECE = 1 << 16
# Which field of InferTensorContents carries a datatype; FP16 and BF16 have none and go as raw contents.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def decode_infer(message: Any, raw: Sequence[bytes | memoryview] | None = None) -> InferenceRequest:
    """Read a ModelInferRequest, whose raw contents may be given beside it. Raises InputError naming the field that is wrong."""
    priority, timeout, _ = read_parameters(parameters_of(message.parameters))
    check_names("inputs", [item.name for item in message.inputs])
    check_names("outputs", [item.name for item in message.outputs])
    sent = [item for item in message.inputs if "shared_memory_region" not in item.parameters]
    raw = list(message.raw_input_contents) if raw is None else raw
    if raw and len(raw) != len(sent):
        raise InputError(f"raw_input_contents has {len(raw)} entries for {len(sent)} inputs; give one for each, or none")
    return InferenceRequest(
        inputs=[decode_tensor(item, raw[number] if raw else None) for number, item in enumerate(sent)],
        outputs=[read_output(item.name, parameters_of(item.parameters)) for item in message.outputs] or None,
        id=message.id,
        priority=priority,
        timeout=timeout,
        binary_output=True,
        shared_inputs=[_shared_input(item) for item in message.inputs if "shared_memory_region" in item.parameters],
    )


def encode_infer(response: InferenceResponse) -> Any:
    """A ModelInferResponse with raw contents."""
    message = pb.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    for tensor in response.outputs:
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if tensor.place is None:
            message.raw_output_contents.append(tensor_to_binary(tensor))
            continue
        output.parameters["shared_memory_region"].string_param = tensor.place.region
        output.parameters["shared_memory_offset"].int64_param = tensor.place.offset
        output.parameters["shared_memory_byte_size"].int64_param = tensor.place.byte_size
        message.raw_output_contents.append(b"")  # raw contents count by position
    return message


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    """Set a message from the data plane's plain values, whose names are the protocol's; returns it."""
    from google.protobuf import json_format

    return json_format.ParseDict(dict(values), message)


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of a LogSettingsRequest; None where none was given."""
    chosen = {name: setting.WhichOneof("parameter_choice") for name, setting in settings.items()}
    return {name: getattr(settings[name], choice) if choice else None for name, choice in chosen.items()}


def log_settings_message(settings: Mapping[str, Any]) -> Any:
    """A LogSettingsResponse."""
    message = pb.LogSettingsResponse()
    for name, value in settings.items():
        kind = "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else "string_param"
        setattr(message.settings[name], kind, value)
    return message


def trace_settings_message(settings: Mapping[str, Any]) -> Any:
    """A TraceSettingResponse."""
    message = pb.TraceSettingResponse()
    for name, value in settings.items():
        message.settings[name].value.extend(value if isinstance(value, list) else [value])
    return message


def decode_tensor(item: Any, raw: bytes | memoryview | None) -> Tensor:
    """A tensor of a message, from its raw contents or its own. Raises InputError."""
    _, shape = read_tensor(item.name, item.datatype, list(item.shape))
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


def _array(name: str, datatype: str, shape: list[int], values: Sequence[Any]) -> np.ndarray:
    if datatype == "BYTES":
        return bytes_array(list(values), shape)
    try:
        # In pieces, since every other thread waits for each.
        pieces = [np.array(values[at : at + _PIECE], DATATYPES[datatype]) for at in range(0, len(values) or 1, _PIECE)]
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)).reshape(shape)
    except OverflowError:
        limits = np.iinfo(DATATYPES[datatype])
        raise InputError(f"input '{name}': {datatype} goes from {limits.min} to {limits.max}") from None


def _shared_input(item: Any) -> SharedInput:
    datatype, shape = read_tensor(item.name, item.datatype, list(item.shape))
    place = read_place(f"input '{item.name}'", parameters_of(item.parameters))
    assert place is not None
    if item.HasField("contents"):
        raise InputError(f"input '{item.name}': give either its data or 'shared_memory_region', not both")
    return SharedInput(item.name, datatype, shape, place)


def parameters_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request, by name."""
    return {name: getattr(value, value.WhichOneof("parameter_choice") or "int64_param") for name, value in parameters.items()}
