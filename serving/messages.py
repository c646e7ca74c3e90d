"""What front ends and the data plane say to each other: requests and responses as plain values, tied to no transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "DATATYPES",
    "InferenceRequest",
    "InferenceResponse",
    "RequestedOutput",
    "Tensor",
    "bytes_array",
    "parse_parameters",
]

from ..errors import InputError, UnsupportedError

# Datatypes of the Open Inference Protocol and numpy's names for them; BYTES are object arrays of bytes.
DATATYPES: dict[str, str] = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object",
}  # fmt: skip


@dataclass(slots=True)
class Tensor:
    """One named tensor: `data` is C-contiguous and has the shape; BYTES have numpy dtype object."""

    name: str
    datatype: str
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape


@dataclass(slots=True)
class RequestedOutput:
    """An output a request asks for: as it is, or (classification > 0) its so many largest entries as BYTES.

    `binary` is how HTTP sends it; None leaves that to the request's default.
    """

    name: str
    classification: int = 0
    binary: bool | None = None


@dataclass(slots=True)
class InferenceRequest:
    """One inference request. `raw` stands for a body that is the one input's bytes and nothing else.

    `priority` 0 and `timeout` None mean that none was given; `timeout` is in seconds.
    """

    inputs: list[Tensor]
    outputs: list[RequestedOutput] | None = None
    id: str = ""
    priority: int = 0
    timeout: float | None = None
    binary_output: bool = False
    raw: bytes | None = None


@dataclass(slots=True)
class InferenceResponse:
    """The answer to one request, its outputs in the order asked for."""

    model: str
    version: str
    outputs: list[Tensor]
    id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


def bytes_array(values: Sequence[bytes], shape: Sequence[int]) -> np.ndarray:
    """A BYTES tensor: numpy would read a plain list of bytes as fixed-width strings and strip their trailing zeros."""
    array: np.ndarray = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(tuple(shape))


def parse_parameters(parameters: dict[str, Any]) -> tuple[int, float | None, bool]:
    """(priority, timeout in seconds, binary_data_output) of a request's parameters; raises InputError naming the wrong one."""
    priority, timeout = parameters.get("priority", 0), parameters.get("timeout", 0)
    binary = parameters.get("binary_data_output", False)
    for name, value in (("priority", priority), ("timeout", timeout)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise InputError(f"parameter '{name}' must be a non-negative integer, got {str(value)[:50]!r}")
    if not isinstance(binary, bool):
        raise InputError("parameter 'binary_data_output' must be true or false")
    if parameters.get("sequence_id", 0) not in (0, ""):
        raise UnsupportedError("sequence_id: these models keep no state between requests; leave it out")
    return priority, timeout / 1e6 or None, binary
