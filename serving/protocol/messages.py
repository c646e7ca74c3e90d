"""What front ends and the data plane say to each other: requests and responses as plain values, tied to no transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Datatypes of the Open Inference Protocol and numpy's names for them; BYTES are object arrays of bytes.
DATATYPES: dict[str, str] = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object",
}  # fmt: skip


# A thread takes some ten milliseconds to read or write so many elements of BYTES, which take so many bytes at least.
MANY_STRINGS, MANY_STRINGS_BYTES = 1 << 14, 1 << 16


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """`byte_size` bytes in a registered region of shared memory, from `offset` on, counted from the region's beginning."""

    region: str
    offset: int
    byte_size: int


@dataclass(slots=True)
class Tensor:
    """One named tensor: `data` is C-contiguous and has the shape; BYTES have numpy dtype object. An answer's tensor with a
    `place` was written there, and is not sent."""

    name: str
    datatype: str
    data: np.ndarray
    place: SharedPlace | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape


@dataclass(slots=True)
class SharedInput:
    """An input whose bytes the client left in shared memory."""

    name: str
    datatype: str
    shape: list[int]
    place: SharedPlace


@dataclass(slots=True)
class RequestedOutput:
    """An output a request asks for: as it is, or (classification > 0) its so many largest entries as BYTES. `binary` is how
    HTTP sends it; None leaves that to the request's default. With a `place` it goes into shared memory."""

    name: str
    classification: int = 0
    binary: bool | None = None
    place: SharedPlace | None = None


@dataclass(slots=True)
class InferenceRequest:
    """One inference request. `raw` stands for a body that is the one input's bytes and nothing else. `priority` 0 and `timeout`
    None mean that none was given; `timeout` is in seconds."""

    inputs: list[Tensor]
    outputs: list[RequestedOutput] | None = None
    id: str = ""
    priority: int = 0
    timeout: float | None = None
    binary_output: bool = False
    raw: bytes | None = None
    shared_inputs: list[SharedInput] = field(default_factory=list)


@dataclass(slots=True)
class InferenceResponse:
    """The answer to one request, its outputs in the order asked for."""

    model: str
    version: str
    outputs: list[Tensor]
    id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


def many_strings(tensors: Sequence[Tensor]) -> bool:
    """Whether these have so many strings that walking through them takes longer than handing them to another thread."""
    return sum(tensor.data.size for tensor in tensors if tensor.datatype == "BYTES") > MANY_STRINGS


def bytes_array(values: Sequence[bytes], shape: Sequence[int]) -> np.ndarray:
    """A BYTES tensor: numpy would read a plain list of bytes as fixed-width strings and strip their trailing zeros."""
    array: np.ndarray = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(tuple(shape))
