"""Fields that requests have over every transport, read by the same rules and rejected in the same words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError, UnsupportedError
from .messages import DATATYPES, RequestedOutput, SharedPlace

_MAX_TENSORS = 64
_MAX_NAME = 1024
_MAX_RANK = 16
_MOST_ELEMENTS = 1 << 48


def read_parameters(parameters: Mapping[str, Any]) -> tuple[int, float | None, bool]:
    """(priority, timeout in seconds, binary_data_output) of a request's parameters; raises InputError naming the wrong one."""
    priority, timeout = parameters.get("priority", 0), parameters.get("timeout", 0)
    binary = parameters.get("binary_data_output", False)
    for name, value in (("priority", priority), ("timeout", timeout)):
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise InputError(f"parameter '{name}' must be a non-negative integer, got {str(value)[:50]!r}")
    if not isinstance(binary, bool):
        raise InputError("parameter 'binary_data_output' must be true or false")
    if parameters.get("sequence_id", 0) not in (0, ""):
        raise UnsupportedError("sequence_id: these models keep no state between requests; leave it out")
    return priority, timeout / 1e6 or None, binary


def check_names(field: str, names: Sequence[Any]) -> None:
    """Raise InputError unless `names` are the names of a bounded number of different tensors."""
    if len(names) > _MAX_TENSORS:
        raise InputError(f"'{field}' may have at most {_MAX_TENSORS} entries, got {len(names)}")
    for name in names:
        if not isinstance(name, str) or not name or len(name) > _MAX_NAME:
            raise InputError(f"every entry of '{field}' needs a 'name'")
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise InputError(f"{field.removesuffix('s')} '{twice[0]}' already exists in request; name each tensor once")


def read_tensor(name: str, datatype: Any, shape: Any) -> tuple[str, list[int]]:
    """An input's datatype and shape. Raises InputError."""
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise InputError(f"input '{name}': 'datatype' must be one of {', '.join(DATATYPES)}, got {str(datatype)[:50]!r}")
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_RANK
        or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape)
    ):
        raise InputError(f"input '{name}': 'shape' must be a list of at most {_MAX_RANK} non-negative integers")
    if math.prod(size or 1 for size in shape) >= _MOST_ELEMENTS:  # an empty tensor too, whose other sizes NumPy multiplies
        raise InputError(f"input '{name}': shape {shape} is too large")
    return datatype, shape


def read_place(what: str, parameters: Mapping[str, Any]) -> SharedPlace | None:
    """Where in shared memory a tensor lies, None when it does not. `what` is the tensor, as in "input 'x'"."""
    region = parameters.get("shared_memory_region")
    if region is None:
        return None
    if not isinstance(region, str) or not region:
        raise InputError(f"{what}: 'shared_memory_region' must be the name of a registered region")
    place: list[int] = []
    for name, default in (("shared_memory_offset", 0), ("shared_memory_byte_size", None)):
        value = parameters.get(name, default)
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise InputError(f"{what}: '{name}' must be a non-negative integer")
        place.append(value)
    return SharedPlace(region, *place)


def read_output(name: str, parameters: Mapping[str, Any]) -> RequestedOutput:
    """An output that a request asks for, with what it asks of it. Raises InputError."""
    classification, binary = parameters.get("classification", 0), parameters.get("binary_data")
    if type(classification) is not int or classification < 0:
        raise InputError(f"output '{name}': 'classification' must be a non-negative integer")
    if binary is not None and not isinstance(binary, bool):
        raise InputError(f"output '{name}': 'binary_data' must be true or false")
    return RequestedOutput(name, classification, binary, read_place(f"output '{name}'", parameters))
