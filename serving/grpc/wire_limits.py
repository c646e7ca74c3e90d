"""What reading a protobuf message will cost, found in its bytes before it is read.

The library reads a message in one go, and every other thread waits meanwhile: 60 MiB of numbers in one byte each, or of empty
inputs, take a second and hundreds of megabytes. So the fields of a long message are counted first, in Python and in pieces; and
it does not read the raw contents, which it would only copy.
The wire format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ...errors import InputError, TooLargeError
from ...runtime.artifact.triton_messages import service as pb

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}
_RAW = pb.ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number
_PIECE = 1 << 20
_MOST_PARTS = 50_000  # some tens of milliseconds of counting
# About what a number and a field become in memory, in bytes.
_NUMBER, _PART = 16, 128


def message_weight(data: bytes, kind: Descriptor, *, max_values: int, max_parts: int = _MOST_PARTS) -> int:
    """About how many bytes of objects a message of that kind becomes, beyond its own.

    Raises TooLargeError where it has more fields than `max_parts` or more numbers in them than `max_values`, but for floats,
    which are only copied; InputError where it is no message.
    """
    counted = _Counted(max_values, max_parts)
    counted.read(memoryview(data), kind)
    return _NUMBER * counted.values + _PART * counted.parts


def without_raw(data: bytes) -> tuple[bytes, list[memoryview]]:
    """A ModelInferRequest without its raw contents, and those, not copied. It must have passed `message_weight`."""
    view, kept, raw, at = memoryview(data), [], [], 0
    while (begin := at) < len(view):
        key, at = _varint(view, at)
        wire = key & 7
        if wire == _VARINT:
            _, at = _varint(view, at)
        elif wire == _BYTES:
            size, at = _varint(view, at)
            at += size
            if key >> 3 == _RAW:
                raw.append(view[at - size : at])
                continue
        else:
            at += 8 if wire == _FIXED64 else 4
        kept.append(view[begin:at])
    return b"".join(kept), raw


class _Counted:
    def __init__(self, max_values: int, max_parts: int) -> None:
        self._max_values, self._max_parts = max_values, max_parts
        self.values = self.parts = 0

    def read(self, data: memoryview, kind: Descriptor) -> None:
        """Count the fields of a message, and those of the messages in it: as deep as their kinds go."""
        at = 0
        while at < len(data):
            self.parts += 1
            if self.parts > self._max_parts:
                raise TooLargeError(f"the message has more than {self._max_parts:,} fields; send tensors in raw_input_contents")
            key, at = _varint(data, at)
            wire = key & 7
            if wire == _VARINT:
                _, at = _varint(data, at)
            elif wire == _BYTES:
                size, at = _varint(data, at)
                self._field(data[at : at + size], kind.fields_by_number.get(key >> 3))
                at += size
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                raise InputError("the message has groups, which this protocol has not")
        if at > len(data):
            raise InputError("the message is cut short")

    def _field(self, data: memoryview, field: Any) -> None:
        if field is None:
            return
        if field.message_type is not None:
            self.read(data, field.message_type)
        elif field.cpp_type not in _FIXED and field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
            for start in range(0, len(data), _PIECE):  # every number ends in a byte without the highest bit
                self.values += int(np.count_nonzero(np.frombuffer(data[start : start + _PIECE], np.uint8) < 0x80))
            if self.values > self._max_values:
                raise TooLargeError(
                    f"the message has more than {self._max_values:,} numbers in fields; send tensors in raw_input_contents"
                )


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number that begins there, and where the next thing does."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise InputError("the message is cut short")
