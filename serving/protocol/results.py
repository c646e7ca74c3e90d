"""Outputs as they are asked for: whole, as Triton's classification strings, or as an image's top labels. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import InputError
from .messages import InferenceRequest, RequestedOutput, Tensor, bytes_array


def requested_outputs(
    request: InferenceRequest, arrays: Mapping[str, np.ndarray], datatypes: Mapping[str, str], labels: Sequence[str]
) -> list[Tensor]:
    """The outputs a request asks for, in its order (all of them when it names none). Labels belong to the first output."""
    wanted = request.outputs or [RequestedOutput(name) for name in arrays]
    first = next(iter(arrays))
    tensors = []
    for output in wanted:
        array = arrays[output.name]
        if output.classification:
            strings = classification(output.name, array, output.classification, labels if output.name == first else ())
            tensors.append(Tensor(output.name, "BYTES", strings))
        else:
            tensors.append(Tensor(output.name, datatypes[output.name], np.ascontiguousarray(array)))
    return tensors


def classification(name: str, array: np.ndarray, count: int, labels: Sequence[str]) -> np.ndarray:
    """Per row the `count` largest entries as b"value:index" or b"value:index:label", in falling order: BYTES [rows, count]."""
    if array.dtype.kind not in "fiu":
        raise InputError(f"output '{name}' holds no numbers to classify by")
    rows = array.reshape(len(array), -1)
    count = min(count, rows.shape[1])
    strings = [
        (f"{row[index]:f}:{index}" + (f":{labels[index]}" if index < len(labels) else "")).encode()
        for row in rows
        for index in _largest(row, count)
    ]
    return bytes_array(strings, (len(rows), count))


def top_labels(row: np.ndarray, count: int, labels: Sequence[str], *, probabilities: bool) -> list[dict[str, Any]]:
    """The most probable classes of one row of scores. Log-probabilities need no case of their own: softmax(log p) is p."""
    row = row.reshape(-1).astype(np.float64)
    scores = row if probabilities else softmax(row)
    return [
        {"label": labels[index] if index < len(labels) else None, "index": int(index), "probability": float(scores[index])}
        for index in _largest(row, min(count, len(row)))
    ]


def softmax(row: np.ndarray) -> np.ndarray:
    """exp(row) / sum(exp(row)), shifted by the maximum so that nothing overflows."""
    shifted = np.exp(row - row.max())
    return shifted / shifted.sum()


def _largest(row: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest entries in falling order; of equal ones the first comes first, as argmax has it."""
    return np.argsort(-row.astype(np.float64), kind="stable")[:count]
