"""What a service says of an image, as a value that another's is compared with."""

from __future__ import annotations

import json
import math
import operator
from typing import Any

Answer = int | tuple[Any, ...]
"""The likeliest class; the labels that hold, ascending; an answer per head; or the numbers of an embedding, as floats."""
LEAST_COSINE = 0.99
"""Of two embeddings that count as the same answer."""


def read_answer(body: bytes) -> Answer:
    """What is in an answer. Raises ValueError when that is nothing.

    An answer is what Headrace says at `/v1/classify` or `/v1/embed`, alone or as the only item of a list, or one of the Open
    Inference Protocol whose output `index` holds the indices of classes, the likeliest first.
    """
    try:
        content = json.loads(body)
        content = content[0] if isinstance(content, list) else content
        if "outputs" in content:
            return _whole(next(output["data"] for output in content["outputs"] if output["name"] == "index")[0])
        if "embedding" in content:
            return _vector(content["embedding"])
        if "embeddings" in content:
            return tuple(_vector(vector) for vector in content["embeddings"].values())
        if "heads" in content:
            return tuple(_labels(head) for head in content["heads"].values())
        return _labels(content)
    except (LookupError, TypeError, AttributeError, UnicodeDecodeError, StopIteration) as error:
        raise ValueError(f"no predictions in the answer: {body[:200]!r}") from error


def same_answer(one: Answer, other: Answer) -> bool:
    """Whether two services say the same: the same classes and labels, and vectors of the same direction."""
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return one == other
    if len(one) != len(other):
        return False
    if one and all(isinstance(value, float) for value in (*one, *other)):
        lengths = math.hypot(*one) * math.hypot(*other)
        return one == other or (lengths > 0 and sum(map(operator.mul, one, other)) / lengths >= LEAST_COSINE)
    return all(same_answer(*pair) for pair in zip(one, other, strict=True))


def as_answer(value: Any) -> Answer | None:
    """An answer that was written as JSON, whose tuples are lists there."""
    return tuple(as_answer(item) for item in value) if isinstance(value, list) else value


def _labels(content: Any) -> Answer:
    found = [_whole(prediction["index"]) for prediction in content["predictions"]]
    return tuple(sorted(found)) if content.get("task") == "multi-label" else found[0]


def _vector(values: Any) -> tuple[float, ...]:
    if not values:
        raise LookupError("an embedding without numbers")
    return tuple(map(float, values))


def _whole(index: Any) -> int:
    if not isinstance(index, int):
        raise TypeError(f"{index!r} is no index")
    return index
