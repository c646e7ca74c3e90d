"""V2 JSON bodies: right ones, and ones in which types, shapes, numbers, keys, nesting or characters are not what they should
be."""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from typing import Any

import numpy as np
from case import Answer, HttpCase, ask
from drawing import Draw
from oracle import strict_json
from world import BATCH, CLASSES, LABELS, SIDE, World, wrong_scores

WEIGHT = 16

_PATHS = {
    "/v2/models/tiny/infer": 8.0,
    "/v2/models/tiny/versions/1/infer": 2.0,
    "/v2/models/tiny_classify/infer": 1.0,
    "/v2/models/tiny_decode/infer": 1.0,
    "/v2/models/tiny/versions/2/infer": 0.3,
    "/v2/models/nope/infer": 0.3,
}
_TYPES = (
    "FP32",
    "FP16",
    "FP64",
    "BF16",
    "BOOL",
    "BYTES",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
)
_KEYS = (
    "id", "inputs", "outputs", "parameters", "name", "shape", "datatype", "data", "binary_data_size", "binary_data",
    "classification",
    "priority", "timeout", "sequence_id", "sequence_start", "binary_data_output", "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size", "__proto__", "",
)  # fmt: skip
_WORDS = (
    b"[", b"]", b"{", b"}", b'"', b":", b",", b"\\", b"\\u0000", b"\\ud800", b"-", b"1e999", b"-0", b"0x1", b"01", b"NaN",
    b"Infinity",
    b"null", b"true", b"//", b"/**/", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\0", b"99999999999999999999", b"[" * 40,
    b"1." + b"0" * 50,
)  # fmt: skip


class Raw:
    """Text that goes into the document as it is."""

    def __init__(self, text: str) -> None:
        self.text = text


def case(draw: Draw, world: World) -> HttpCase:
    """One inference, all of it JSON."""
    rows = world.rows(draw.random, draw.weighted({1: 6, 2: 2, 3: 1, BATCH: 0.5}))
    message, check = _good(draw, world, rows)
    if draw.chance(0.2):
        body, headers = _packed(draw, json.dumps(message).encode())
        return ask("/v2/models/tiny/infer", body, headers, statuses=frozenset({200}), checks=(check,))
    for _ in range(draw.between(1, 3)):
        message = _change(draw, message)
    body = dump(message, draw).encode("utf-8", "surrogatepass")
    if draw.chance(0.3):
        body = draw.damage(body, _WORDS, within=draw.pick((60, 300, None)))
    body, headers = _packed(draw, body) if draw.chance(0.15) else (body, {})
    if headers and draw.chance(0.4):
        body = draw.damage(body)
    if draw.chance(0.03):
        headers["Content-Encoding"] = draw.pick(("br", "gzip, gzip", "GZIP", "", "deflate", "identity", "*"))
    return ask(draw.weighted(_PATHS), body, headers)


def _good(draw: Draw, world: World, rows: np.ndarray) -> tuple[dict[str, Any], Any]:
    data: Any = rows.round(4)
    scores = world.scores(data)
    tensor = {"name": "images", "datatype": "FP32", "shape": list(rows.shape)}
    message: dict[str, Any] = {"inputs": [tensor | {"data": data.tolist() if draw.chance(0.3) else data.ravel().tolist()}]}
    if draw.chance(0.5):
        message["id"] = draw.pick(("1", "a b", "é", "x" * 100))
    if draw.chance(0.3):
        message["parameters"] = {"priority": draw.between(0, 3), "timeout": 60_000_000}
    classes = draw.between(1, CLASSES) if draw.chance(0.3) else 0
    if classes or draw.chance(0.3):
        message["outputs"] = [{"name": "scores", "parameters": {"classification": classes, "binary_data": False}}]

    def check(answer: Answer) -> str | None:
        found: Any = strict_json(answer.body)
        (output,) = found["outputs"]
        if found.get("id", "") != message.get("id", "") or found["model_name"] != "tiny":
            return f"of another request: {answer.body[:200]!r}"
        if not classes:
            return wrong_scores(output["data"], scores)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :classes]
        expected = [f"{index}:{LABELS[index]}" for index in best.ravel()]
        given = [value.partition(":")[2] for value in output["data"]]
        return None if given == expected or _nearly_equal(scores, classes) else f"{output['data']} instead of {expected}"

    return message, check


def _nearly_equal(scores: np.ndarray, classes: int) -> bool:
    """Whether rounding decides the order of the best."""
    ordered = np.sort(scores, axis=1)[:, ::-1][:, : classes + 1]
    return bool((-np.diff(ordered, axis=1) < 1e-4).any())


def _packed(draw: Draw, body: bytes) -> tuple[bytes, dict[str, str | int]]:
    kind = draw.pick(("", "", "gzip", "deflate"))
    if not kind:
        return body, {}
    return (gzip.compress(body, 1, mtime=0) if kind == "gzip" else zlib.compress(body, 1)), {"Content-Encoding": kind}


def value(draw: Draw, depth: int = 0) -> Any:
    """Any JSON value, and some that are none."""
    kind = draw.between(0, 11 if depth < 3 else 7)
    if kind == 0:
        return draw.pick((None, True, False))
    if kind in (1, 2):
        return draw.number()
    if kind == 3:
        return draw.pick((0.5, -0.0, 1e308, 5e-324, 1.0))
    if kind in (4, 5):
        return draw.text()
    if kind == 6:
        return Raw(
            draw.pick(
                ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1E400", "1" * 400, "0." + "9" * 60, "nul", "+1", "'a'", "")
            )
        )
    if kind == 7:
        return draw.pick(_TYPES)
    if kind == 8:
        return [value(draw, depth + 1)] * draw.between(0, 70)
    if kind == 9:
        return {draw.pick(_KEYS): value(draw, depth + 1) for _ in range(draw.between(0, 4))}
    if kind == 10:
        levels = draw.between(1, 60)
        return Raw("[" * levels + "]" * (levels - draw.weighted({0: 5, 1: 1})))
    return [value(draw, depth + 1) for _ in range(draw.between(0, 4))]


def _change(draw: Draw, message: Any) -> Any:
    """A copy in which one place is different."""
    message = copy.deepcopy(message)
    places = list(_places(message))
    if not places:
        return value(draw)
    holder, key = draw.pick(places)
    kind = draw.between(0, 5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[draw.pick(_KEYS)] = holder.pop(key)
    elif kind == 2 and isinstance(holder, dict):
        holder[draw.pick(_KEYS)] = value(draw)
    elif kind == 3 and isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key])] * draw.pick((1, 1, 2, 65))
    elif key == "shape":
        holder[key] = draw.pick(
            (
                [draw.number() for _ in range(draw.between(0, 5))],
                [1, 3, SIDE, SIDE - 1],
                [3, SIDE, SIDE],
                [-1, 3, SIDE, SIDE],
                [1] * 17,
                [2**32] * 4,
            )
        )
    elif key == "datatype":
        holder[key] = draw.pick(_TYPES)
    else:
        holder[key] = value(draw)
    return message


def _places(node: Any, depth: int = 0) -> Any:
    """Every (holder, key) in the document, but of the numbers only some."""
    items = node.items() if isinstance(node, dict) else list(enumerate(node))[:3] if isinstance(node, list) else ()
    for key, inner in items:
        yield node, key
        if depth < 8:
            yield from _places(inner, depth + 1)


def dump(node: Any, draw: Draw) -> str:
    """JSON text; now and then a key comes twice."""
    if isinstance(node, Raw):
        return node.text
    if isinstance(node, dict):
        pairs = [f"{json.dumps(str(key))}:{dump(inner, draw)}" for key, inner in node.items()]
        if pairs and draw.chance(0.05):
            pairs.append(
                draw.pick(pairs) if draw.chance(0.5) else f"{json.dumps(str(next(iter(node))))}:{dump(value(draw), draw)}"
            )
        return "{" + ",".join(pairs) + "}"
    if isinstance(node, list):
        return "[" + ",".join(dump(inner, draw) for inner in node) + "]"
    return json.dumps(node, ensure_ascii=draw.chance(0.5))
