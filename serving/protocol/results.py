"""Outputs as they are asked for: whole, as Triton's classification strings, as an image's labels or vectors. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ExecutionError, InputError
from ...runtime.artifact.agreement import best_classes, decisions, probabilities
from ...runtime.base.task import SINGLE_LABEL, Head, Task
from .messages import InferenceRequest, RequestedOutput, Tensor, bytes_array

_MOST_CLASSES = 1_000_000  # as in Triton
_NO_NUMBERS = "gives scores for this image that are not numbers"


def requested_outputs(
    request: InferenceRequest,
    arrays: Mapping[str, np.ndarray],
    datatypes: Mapping[str, str],
    labels: Mapping[str, Sequence[str]],
) -> list[Tensor]:
    """The outputs a request asks for, in its order (all of them when it names none), with the labels of each."""
    wanted = request.outputs or [RequestedOutput(name) for name in arrays]
    tensors = []
    for output in wanted:
        array = arrays[output.name]
        if output.classification:
            strings = classification(output.name, array, output.classification, labels.get(output.name, ()))
            tensors.append(Tensor(output.name, "BYTES", strings))
        else:
            tensors.append(Tensor(output.name, datatypes[output.name], np.ascontiguousarray(array)))
    return tensors


def classification(name: str, array: np.ndarray, count: int, labels: Sequence[str]) -> np.ndarray:
    """Per row the `count` largest entries as b"value:index" or b"value:index:label", in falling order: BYTES [rows, count]."""
    if array.dtype.kind not in "fiu":
        kind = {"O": "BYTES", "b": "BOOL"}.get(array.dtype.kind, array.dtype.name.upper())
        raise InputError(f"class result not available for output due to unsupported type '{kind}': '{name}' holds no numbers")
    rows = array.reshape(len(array), -1)
    if rows.shape[1] > _MOST_CLASSES:
        raise InputError(f"classification output tensor too large: '{name}' has more than {_MOST_CLASSES:,} elements")
    count = min(count, rows.shape[1])
    strings = [
        (f"{row[index]:f}:{index}" + (f":{labels[index]}" if index < len(labels) else "")).encode()
        for row in rows
        for index in _largest(row, count)
    ]
    return bytes_array(strings, (len(rows), count))


def predictions(head: Head, row: np.ndarray, count: int) -> list[dict[str, Any]]:
    """What one row of scores says, the most probable first: the `count` best classes, or all labels above their thresholds.

    Raises ExecutionError where the scores are not numbers.
    """
    row = row.reshape(-1)
    if head.kind == SINGLE_LABEL:
        return named(head, *(found[0] for found in best_classes(head, row[None], count)))
    if not np.isfinite(shares := probabilities(head, row)).all():
        raise ExecutionError(_NO_NUMBERS)
    holds = decisions(head, row[None])[0]
    best = [index for index in _largest(row, len(row)) if holds[index]]
    return named(head, np.asarray(best, np.int64), shares[best])


def named(head: Head, classes: np.ndarray, shares: np.ndarray) -> list[dict[str, Any]]:
    """Classes and their probabilities as an answer has them, in their order. Raises ExecutionError as `predictions` does."""
    labels, probability = head.labels, shares.tolist()
    if not all(map(math.isfinite, probability)):
        raise ExecutionError(_NO_NUMBERS)
    return [
        {"label": labels[index] if index < len(labels) else None, "index": index, "probability": share}
        for index, share in zip(classes.tolist(), probability, strict=True)
    ]


def classified(task: Task, outputs: Mapping[str, np.ndarray], count: int) -> dict[str, Any]:
    """What an image's outputs, each [1, ...], say of its labels: `predictions`, or of several heads those of each under its
    output's name. Where labels are not those of one class alone, `task` says so."""
    heads = {}
    for head in task.classifying:
        kind = {} if head.kind == SINGLE_LABEL else {"task": head.kind}
        heads[head.output] = {**kind, "predictions": predictions(head, outputs[head.output][0], count)}
    return next(iter(heads.values())) if len(heads) == 1 else {"heads": heads}


def chosen(task: Task, best: Sequence[np.ndarray]) -> dict[str, Any]:
    """The same of a model that gives one class of several, from the best classes and their probabilities, each [1, count]."""
    (head,) = task.classifying
    classes, shares = best
    return {"predictions": named(head, classes[0], shares[0])}


def image_routes(task: Task) -> tuple[str, ...]:
    """The routes at which a model with such outputs answers images."""
    return tuple(route for route, heads in (("classify", task.classifying), ("embed", task.embedding)) if heads)


def not_answered(task: Task, route: str, name: str) -> str | None:
    """Why a model does not answer at that route for images, and which route does; None where it does."""
    answering = image_routes(task)
    if route in answering:
        return None
    other = next((f"send the image to /v1/{one}/{name}" for one in answering), None)
    given = ", ".join(f"{head.output}: {head.described}" for head in task.heads)
    wanted = {"classify": "no class scores", "embed": "no embeddings"}[route]
    tensors = f"send tensors to /v2/models/{name}/infer, which gives all outputs as they are"
    return f"model '{name}' gives {wanted} ({given}); {other or tensors}"


def embedded(task: Task, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The vector of an image: `embedding`, or of several outputs those of each under its name."""
    vectors: dict[str, list[float]] = {}
    for head in task.embedding:
        vector = outputs[head.output][0].reshape(-1)
        if not np.isfinite(vector).all():
            raise ExecutionError("gives an embedding for this image that holds no numbers")
        vectors[head.output] = vector.astype(np.float64).tolist()
    return {"embedding": next(iter(vectors.values()))} if len(vectors) == 1 else {"embeddings": vectors}


def _largest(row: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest entries in falling order; of equal ones the first comes first, as argmax has it."""
    return np.argsort(-row.astype(np.float64), kind="stable")[:count]
