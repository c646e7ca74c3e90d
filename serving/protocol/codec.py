"""The Open Inference Protocol's HTTP bodies: JSON with the binary tensor data extension, to messages and back. Pure functions.

Rules follow Triton's documents: `Inference-Header-Content-Length` counts the JSON, tensors follow in declared order,
little-endian and row-major, BYTES elements as u32 length and data; a length of 0 means that the body is the one input's bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InputError, TooLargeError
from .json_limits import LongString, parse_json
from .messages import DATATYPES, InferenceRequest, InferenceResponse, RequestedOutput, SharedInput, Tensor, bytes_array
from .request_fields import check_names, read_output, read_parameters, read_place, read_tensor

_PIECE = 1 << 16
_LENGTH = struct.Struct("<I").unpack_from
_MOST_STRINGS = 1 << 22
_KINDS = {"BOOL": "b", "FP32": "fiu", "FP64": "fiu"}


def decode_request(
    body: bytes, header_length: int | None, *, max_depth: int = 32, max_values: int = 1 << 22
) -> InferenceRequest:
    """Read an infer request's decompressed body; `header_length` is the header's value, None when it was absent. Raises
    InputError naming the field that is wrong and what was expected there."""
    if header_length == 0:
        return InferenceRequest(inputs=[], raw=body, binary_output=True)
    if header_length is not None and header_length > len(body):
        raise InputError(f"Inference-Header-Content-Length is {header_length}, but the body has only {len(body)} bytes")
    message = parse_json(body, end=header_length, max_depth=max_depth, max_values=max_values)
    if not isinstance(message, dict):
        raise InputError("the request must be a JSON object")
    binary = memoryview(body)[len(body) if header_length is None else header_length :]
    request_id = message.get("id", "")
    if not isinstance(request_id, str):
        raise InputError("'id' must be a string")
    priority, timeout, binary_output = read_parameters(_parameters(message, "the request"))
    inputs: list[Tensor] = []
    shared: list[SharedInput] = []
    at = 0
    for entry in _entries(message, "inputs"):
        tensor, used = _decode_input(entry, binary[at:])
        if isinstance(tensor, SharedInput):
            shared.append(tensor)
        else:
            inputs.append(tensor)
        at += used
    if at != len(binary):
        raise InputError(f"the request carries {len(binary)} bytes of binary data, but its inputs account for {at}")
    outputs = [_decode_output(entry) for entry in _entries(message, "outputs")] if message.get("outputs") else None
    return InferenceRequest(
        inputs=inputs,
        outputs=outputs,
        id=request_id,
        priority=priority,
        timeout=timeout,
        binary_output=binary_output,
        shared_inputs=shared,
    )


def control_parameters(body: bytes, *, max_depth: int = 32) -> dict[str, Any]:
    """The parameters of a load or unload request, whose body may also be empty."""
    message = parse_json(body, max_depth=max_depth) if body.strip() else {}
    if not isinstance(message, dict):
        raise InputError("the request must be a JSON object")
    return _parameters(message, "the request")


def encode_response(response: InferenceResponse, request: InferenceRequest) -> tuple[list[bytes], int | None]:
    """The body's parts, and the Inference-Header-Content-Length, which is None when everything is JSON."""
    asked = {output.name: output for output in request.outputs or ()}
    outputs, binary = [], []
    for tensor in response.outputs:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        wanted = asked.get(tensor.name)
        if tensor.place is not None:
            entry["parameters"] = {
                "shared_memory_region": tensor.place.region,
                "shared_memory_offset": tensor.place.offset,
                "shared_memory_byte_size": tensor.place.byte_size,
            }
        elif request.binary_output if wanted is None or wanted.binary is None else wanted.binary:
            data = tensor_to_binary(tensor)
            entry["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            entry["data"] = _to_json_data(tensor)
        outputs.append(entry)
    message: dict[str, Any] = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    if response.id:
        message["id"] = response.id
    if response.parameters:
        message["parameters"] = response.parameters
    header = json.dumps(message, separators=(",", ":")).encode()
    return [header, *binary], len(header) if binary else None


def binary_to_tensor(name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Tensor:
    """A tensor from its binary form; `data` must be exactly as long as the shape asks for."""
    count = math.prod(shape)
    if datatype == "BYTES":
        return Tensor(name, datatype, bytes_array(_split_bytes(name, count, memoryview(data)), shape))
    dtype = np.dtype(DATATYPES[datatype]).newbyteorder("<")
    if len(data) != count * dtype.itemsize:
        raise InputError(
            f"input '{name}': {datatype} of shape {list(shape)} takes {count * dtype.itemsize} bytes, got {len(data)}"
        )
    array = np.frombuffer(data, dtype=dtype).reshape(tuple(shape))
    if datatype == "BOOL" and (array.view(np.uint8) > 1).any():
        raise InputError(f"input '{name}': BOOL bytes must be 0 or 1")
    return Tensor(name, datatype, array)


def tensor_to_binary(tensor: Tensor) -> bytes:
    """The tensor's binary form."""
    if tensor.datatype != "BYTES":
        array = tensor.data
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join(len(value).to_bytes(4, "little") + value for value in tensor.data.ravel())


def from_json_data(name: str, datatype: str, shape: list[int], data: Any) -> np.ndarray:
    """Numbers or strings, flat or nested, in the tensor's dtype and shape; nothing is rounded, wrapped or parsed."""
    if datatype == "FP16":
        raise InputError(f"input '{name}': FP16 cannot be sent as JSON; send it as binary data")
    if not isinstance(data, list):
        raise InputError(f"input '{name}': 'data' must be a list")
    count = math.prod(shape)
    if datatype == "BYTES":
        flat = _flatten(data)
        if any(isinstance(value, LongString) for value in flat):
            raise TooLargeError(f"input '{name}': a string has more than 1 MiB; send it as binary data")
        if not all(isinstance(value, str) for value in flat):
            raise InputError(f"input '{name}': BYTES in JSON must be strings")
        if len(flat) != count:
            raise InputError(f"input '{name}': shape {shape} takes {count} elements, got {len(flat)}")
        return bytes_array([value.encode("utf-8", "surrogatepass") for value in flat], shape)
    dtype = np.dtype(DATATYPES[datatype])
    try:
        # Without a common dtype numpy would make floats of large integers, and numbers of strings.
        given = _array(data, object if dtype.kind in "iu" else None)
    except (ValueError, OverflowError, TypeError):
        raise InputError(f"input '{name}': 'data' is not a regular array of numbers") from None
    if given.size != count:
        raise InputError(f"input '{name}': shape {shape} takes {count} elements, got {given.size}")
    if given.size and given.dtype.kind not in _KINDS.get(datatype, "O"):
        raise InputError(f"input '{name}': 'data' does not hold {datatype} values")
    if dtype.kind in "iu" and given.size:
        if not all(type(value) is int for value in given.ravel()):
            raise InputError(f"input '{name}': 'data' does not hold {datatype} values")
        limits = np.iinfo(dtype)
        if given.min() < limits.min or given.max() > limits.max:
            raise InputError(f"input '{name}': {datatype} goes from {limits.min} to {limits.max}")
    with np.errstate(over="ignore"):
        return given.astype(dtype).reshape(shape)


def _split_bytes(name: str, count: int, data: memoryview) -> list[bytes]:
    if count > _MOST_STRINGS:  # each is an object, many times as large as it is on its way
        raise InputError(f"input '{name}' has {count:,} BYTES elements; this server takes at most {_MOST_STRINGS:,}")
    values: list[bytes] = []
    at, end = 0, len(data)
    while at < end and len(values) < count:
        stop = at + 4 + _LENGTH(data, at)[0] if at + 4 <= end else end + 1
        if stop > end:
            raise InputError(
                f"input '{name}': BYTES element {len(values)} is cut short; expected a u32 length and so many bytes"
            )
        values.append(data[at + 4 : stop].tobytes())
        at = stop
    if at < end:
        raise InputError(f"input '{name}': {end - at} bytes are left after its {count} BYTES elements")
    if len(values) != count:
        raise InputError(f"input '{name}': the shape asks for {count} BYTES elements, got {len(values)}")
    return values


def _decode_input(entry: dict[str, Any], binary: memoryview) -> tuple[Tensor | SharedInput, int]:
    """One entry of "inputs", and how many of the binary bytes it took."""
    name = entry["name"]
    datatype, shape = read_tensor(name, entry.get("datatype"), entry.get("shape"))
    parameters = _parameters(entry, f"input '{name}'")
    place = read_place(f"input '{name}'", parameters)
    size = parameters.get("binary_data_size")
    if place is not None:
        if "data" in entry or size is not None:
            raise InputError(f"input '{name}': give either its data or 'shared_memory_region', not both")
        return SharedInput(name, datatype, shape, place), 0
    if size is None:
        if "data" not in entry:
            raise InputError(f"input '{name}': give 'data' or the parameter 'binary_data_size'")
        return Tensor(name, datatype, from_json_data(name, datatype, shape, entry["data"])), 0
    if type(size) is not int or size < 0:
        raise InputError(f"input '{name}': 'binary_data_size' must be a non-negative integer")
    if "data" in entry:
        raise InputError(f"input '{name}': give either 'data' or 'binary_data_size', not both")
    if size > len(binary):
        raise InputError(f"input '{name}': 'binary_data_size' is {size}, but only {len(binary)} bytes are left in the body")
    return binary_to_tensor(name, datatype, shape, binary[:size]), size


def _decode_output(entry: dict[str, Any]) -> RequestedOutput:
    return read_output(entry["name"], _parameters(entry, f"output '{entry['name']}'"))


def _array(data: list[Any], dtype: type[object] | None) -> np.ndarray:
    """As np.asarray, in pieces, since every other thread waits for each."""
    if data and isinstance(data[0], list):
        return np.stack([_array(item, dtype) if isinstance(item, list) else np.asarray(item, dtype) for item in data])
    pieces = [np.asarray(data[at : at + _PIECE], dtype) for at in range(0, len(data), _PIECE)]
    return np.concatenate(pieces) if len(pieces) > 1 else np.asarray(data, dtype)


def _to_json_data(tensor: Tensor) -> list[Any]:
    if tensor.datatype == "FP16":
        raise InputError(f"output '{tensor.name}': FP16 cannot be sent as JSON; ask for binary data")
    if tensor.datatype != "BYTES":
        if tensor.data.dtype.kind == "f" and not np.isfinite(tensor.data).all():
            raise InputError(f"output '{tensor.name}' holds NaN or infinity, which JSON has not; ask for binary data")
        return list(tensor.data.ravel().tolist())
    try:
        return [value.decode() for value in tensor.data.ravel()]
    except UnicodeDecodeError:
        raise InputError(f"output '{tensor.name}' is not text; ask for binary data") from None


def _flatten(data: list[Any]) -> list[Any]:
    while any(isinstance(value, list) for value in data):
        data = [item for value in data for item in (value if isinstance(value, list) else [value])]
    return data


def _entries(message: dict[str, Any], field: str) -> list[dict[str, Any]]:
    entries = message.get(field)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"'{field}' must be a list of objects")
    check_names(field, [entry.get("name") for entry in entries])
    return entries


def _parameters(entry: dict[str, Any], what: str) -> dict[str, Any]:
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InputError(f"'parameters' of {what} must be an object")
    return parameters
