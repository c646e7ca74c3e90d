"""`{"instances": [...]}`, as KServe V1, Vertex AI and SageMaker ask: images in base64, or rows of tensors. Pure functions.

An image is {"b64": "..."}, alone or as the one value of an object, as TensorFlow Serving's REST API writes bytes. Rows are
nested lists, or for models of several inputs an object of them by the inputs' names.
"""

from __future__ import annotations

import binascii
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError, TooLargeError
from ...runtime.artifact.model_config import ConfigTensor
from .codec import from_json_data
from .json_limits import LongString, parse_json
from .messages import Tensor

_MOST_LABELS = 200_000  # an object each, as many as a request may hold
_PIECE = 1 << 20  # of base64, a multiple of four: every other thread waits for each
_KNOWN = {"instances", "parameters", "signature_name"}


@dataclass(frozen=True)
class Instances:
    """What is asked: encoded images, or else rows as they stood in the JSON. `count` is how many labels are wanted."""

    images: Sequence[bytes]
    rows: Sequence[Any]
    count: int


def read_instances(body: bytes, *, max_depth: int, max_values: int) -> Instances:
    """Read a request's body. Raises InputError naming the instance that is wrong and what was expected there."""
    message = parse_json(body, max_depth=max_depth, max_values=max_values, max_string=len(body))
    if not isinstance(message, dict) or not isinstance(given := message.get("instances"), list) or not given:
        raise InputError('the request must be a JSON object whose "instances" is a list that is not empty')
    if unknown := sorted(set(message) - _KNOWN):
        raise InputError(f"unknown field {unknown[0][:100]!r}; a request has instances and parameters")
    parameters = message.get("parameters") or {}
    if not isinstance(parameters, dict) or set(parameters) - {"k"}:
        raise InputError('"parameters" must be an object; it may hold "k", how many labels are wanted')
    count = parameters.get("k", 5)
    if type(count) is not int or not 1 <= count <= 1000:
        raise InputError(f"k must be from 1 to 1000, got {str(count)[:50]}")
    texts = [_encoded(instance) for instance in given]
    if all(text is None for text in texts):
        return Instances((), given, count)
    if len(given) * count > _MOST_LABELS:
        raise TooLargeError(
            f"{len(given):,} images with {count:,} labels each are more than the {_MOST_LABELS:,} labels of one answer; send "
            "fewer images at a time, or ask for fewer labels by k"
        )
    return Instances([_decoded(number, text) for number, text in enumerate(texts)], (), count)


def tensors_of(rows: Sequence[Any], inputs: Sequence[ConfigTensor]) -> list[Tensor]:
    """The model's inputs [len(rows), ...] from rows. Raises InputError."""
    names = [declared.name for declared in inputs]
    for number, row in enumerate(rows):
        if isinstance(row, dict) and set(row) != set(names):
            raise InputError(f"instances[{number}] must have the model's inputs, {', '.join(names)}")
        if not isinstance(row, dict) and len(names) > 1:
            raise InputError(f"instances[{number}] must be an object of the model's inputs, {', '.join(names)}")
    found = []
    for declared in inputs:
        values = [row[declared.name] if isinstance(row, dict) else row for row in rows]
        sizes = _lengths(values)
        shape = [len(rows), *(_size(size, sizes[at : at + 1]) for at, size in enumerate(declared.shape, 1))]
        data = from_json_data(declared.name, declared.datatype, shape, values)
        found.append(Tensor(declared.name, declared.datatype, data))
    return found


def rows_of(outputs: Sequence[Tensor]) -> Iterator[Any]:
    """A prediction for each row: its values, or of several outputs those of each by its name. Raises InputError for what JSON
    has not."""
    for tensor in outputs:
        if tensor.data.dtype.kind == "f" and not np.isfinite(tensor.data).all():
            raise InputError(f"output '{tensor.name}' holds NaN or infinity, which JSON has not; ask /v2 for binary data")
    for values in zip(*(_values(tensor) for tensor in outputs), strict=True):
        yield values[0] if len(outputs) == 1 else {tensor.name: value for tensor, value in zip(outputs, values, strict=True)}


def _values(tensor: Tensor) -> list[Any]:
    if tensor.datatype != "BYTES":
        return list(tensor.data.tolist())
    texts = np.array([value.decode(errors="replace") for value in tensor.data.ravel()], object)
    return list(texts.reshape(tensor.shape).tolist())


def _encoded(instance: Any) -> str | LongString | None:
    """The base64 of an instance that is an image."""
    found = instance
    if isinstance(found, dict) and len(found) == 1 and isinstance(one := next(iter(found.values())), dict):
        found = one
    text = found["b64"] if isinstance(found, dict) and set(found) == {"b64"} else None
    return text if isinstance(text, (str, LongString)) else None


def _decoded(number: int, text: str | LongString | None) -> bytes:
    if text is None:
        raise InputError(f'instances[{number}] is no image; the others are images, as in {{"b64": "..."}}')
    return decode_base64(text.pieces if isinstance(text, LongString) else [text], f"instances[{number}]")


def decode_base64(parts: Iterable[str], what: str) -> bytes:
    """The bytes that a text of several parts holds. Raises InputError saying that `what` is none."""
    pieces = (part[at : at + _PIECE] for part in parts for at in range(0, len(part), _PIECE))
    image, left, over = io.BytesIO(), "", False
    try:
        for piece in pieces:
            if over:
                raise ValueError
            whole, left = _in_fours(left + piece)
            over = whole.endswith("=")
            image.write(binascii.a2b_base64(whole, strict_mode=True))
        if left:
            raise ValueError
    except ValueError:
        raise InputError(f"{what} is not valid base64") from None
    return image.getvalue()


def _in_fours(text: str) -> tuple[str, str]:
    """The characters of base64 that are bytes of their own, and the few that wait for the next piece."""
    end = len(text) // 4 * 4
    return text[:end], text[end:]


def _lengths(value: Any) -> list[int]:
    """How long the lists are, by depth, along the first of each."""
    found = []
    while isinstance(value, list):
        found.append(len(value))
        value = value[0] if value else None
    return found


def _size(declared: int, given: Sequence[int]) -> int:
    """A size as the model declares it, or where it leaves that open, as it is."""
    return declared if declared >= 0 else (given[0] if given else 1)
