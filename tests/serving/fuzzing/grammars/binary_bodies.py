"""The binary tensor extension: header lengths against real lengths, sizes of every wrongness, and BYTES with their prefixes."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from case import Answer, HttpCase, ask
from drawing import Draw
from oracle import strict_json
from world import BATCH, SIDE, World, images, wrong_scores

WEIGHT = 16

_IMAGES = images()
_LENGTH = "Inference-Header-Content-Length"
_TYPES = ("BYTES", "FP32", "UINT8", "BOOL", "FP16", "BF16", "INT64", "FLOAT", "")
_SPELLINGS = (
    "{}",
    "{}",
    "{}",
    "0{}",
    "+{}",
    "-{}",
    "{}.0",
    "{}e0",
    " {} ",
    "{},{}",
    "0x{:x}",
    "{};",
    "\u00b2",
    "",
    "x",
    "{}_0",
    "9" * 30,
    "-1",
    "0",
)


def case(draw: Draw, world: World) -> HttpCase:
    """One inference with binary tensors, or with a raw one."""
    if draw.chance(0.2):
        return _good(draw, world)
    if draw.chance(0.1):
        return _raw(draw, world)
    classify = draw.chance(0.35)
    data = _strings(draw) if classify else _row_bytes(draw, world)
    shape = [draw.pick((1, 1, 1, 2, 0)), 1] if classify else [len(data) // (3 * SIDE * SIDE * 4) or 1, 3, SIDE, SIDE]
    size: Any = len(data)
    if draw.chance(0.4):
        size = draw.pick(
            (
                len(data) + 1,
                len(data) - 1,
                0,
                -1,
                2 * len(data),
                str(len(data)),
                float(len(data)),
                None,
                True,
                [len(data)],
                draw.number(),
            )
        )
    tensor = {
        "name": draw.weighted({"IMAGE" if classify else "images": 12, "other": 1}),
        "datatype": draw.weighted(dict.fromkeys(_TYPES, 1) | {"BYTES" if classify else "FP32": 40}),
        "shape": shape
        if draw.chance(0.8)
        else [draw.pick((0, 1, 2, 3, SIDE, 768, 3072, 2**31, 2**40, -1)) for _ in range(draw.between(0, 5))],
        "parameters": {"binary_data_size": size},
    }
    header: dict[str, Any] = {"inputs": [tensor] * draw.weighted({1: 12, 2: 1, 0: 0.3})}
    if draw.chance(0.4):
        header["outputs"] = [_output(draw, "scores")]
    if draw.chance(0.2):
        header["parameters"] = {"binary_data_output": draw.pick((True, False, 1, "true", None))}
    if world.key and draw.chance(0.1):
        tensor["parameters"] = _place(draw)
    text = json.dumps(header).encode()
    if draw.chance(0.15):
        text = draw.damage(text)
    length = len(text) + draw.weighted({0: 8, 1: 1, -1: 1, 7: 1, len(data): 0.5, len(data) + 1: 0.5, -len(text): 0.5})
    given = draw.pick(_SPELLINGS).format(length, length) if draw.chance(0.2) else str(length)
    body = text + data * draw.weighted({1: 12, 0: 1, 2: 1}) + draw.bytes(4) * draw.chance(0.05)
    headers = {} if draw.chance(0.04) else {_LENGTH: given}
    return ask(f"/v2/models/{'tiny_classify' if classify else 'tiny'}/infer", body, headers)


def _good(draw: Draw, world: World) -> HttpCase:
    rows = world.rows(draw.random, draw.weighted({1: 5, 2: 2, BATCH: 1}))
    data = rows.tobytes()
    tensor = {"name": "images", "datatype": "FP32", "shape": list(rows.shape), "parameters": {"binary_data_size": len(data)}}
    binary = draw.chance(0.6)
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": binary}}).encode() + b" " * draw.between(0, 3)
    check = _scores_check(world.scores(rows), binary=binary)
    return ask("/v2/models/tiny/infer", text + data, {_LENGTH: len(text)}, statuses=frozenset({200}), checks=(check,))


def _scores_check(scores: np.ndarray, *, binary: bool) -> Any:
    def check(answer: Answer) -> str | None:
        length = int(answer.headers.get(_LENGTH.lower(), len(answer.body)))
        message: Any = strict_json(answer.body[:length])
        (output,) = message["outputs"]
        if not binary:
            return wrong_scores(output["data"], scores)
        rest = answer.body[length:]
        if output["parameters"]["binary_data_size"] != len(rest) or list(output["shape"]) != list(scores.shape):
            return f"{len(rest)} bytes of shape {output['shape']}"
        return wrong_scores(np.frombuffer(rest, "<f4"), scores)

    return check


def _raw(draw: Draw, world: World) -> HttpCase:
    """A header length of 0: the whole body is the one input."""
    if draw.chance(0.3):
        rows = world.rows(draw.random, draw.between(1, 2))
        check = _scores_check(world.scores(rows), binary=True)
        return ask("/v2/models/tiny/infer", rows.tobytes(), {_LENGTH: 0}, statuses=frozenset({200}), checks=(check,))
    body = draw.pick((_row_bytes(draw, world), draw.bytes(70), b"", draw.pick(_IMAGES)))
    return ask(
        f"/v2/models/{draw.pick(('tiny', 'tiny_classify', 'tiny_decode'))}/infer",
        body,
        {_LENGTH: draw.pick(("0", "00", "000"))},
    )


def _row_bytes(draw: Draw, world: World) -> bytes:
    """Rows of a model, of which some hold what is no number."""
    rows = world.rows(draw.random, draw.weighted({1: 6, 2: 1, BATCH: 0.5, BATCH + 1: 0.5}))
    if draw.chance(0.3):
        rows.ravel()[draw.random.randrange(rows.size)] = draw.pick((np.nan, np.inf, -np.inf, 3.4e38, 1e-45))
    data = rows.tobytes()
    return data if draw.chance(0.8) else data[: draw.between(0, len(data))]


def _strings(draw: Draw) -> bytes:
    """BYTES elements whose prefixes count right or wrong."""
    parts = []
    for _ in range(draw.weighted({1: 10, 2: 3, 0: 1, 9: 0.5})):
        element = draw.pick(_IMAGES) if draw.chance(0.5) else draw.bytes(20)
        size = len(element) + draw.weighted(
            {0: 10, 1: 1, -1: 1, 1000: 1, -len(element): 1, 0xFFFFFFFF - len(element): 1, 0x7FFFFFFF - len(element): 1}
        )
        prefix = struct.pack(draw.weighted({"<I": 10, ">I": 1}), size % 2**32)
        parts.append(prefix[: draw.weighted({4: 20, 3: 1, 0: 1})] + element)
    return b"".join(parts)


def _output(draw: Draw, name: str) -> dict[str, Any]:
    parameters = {
        draw.pick(("binary_data", "classification", "shared_memory_region", "other")): draw.pick(
            (True, False, 1, 3, 7, 8, 2**63, -1, 0, "a", None, 1.5, [])
        )
        for _ in range(draw.between(0, 2))
    }
    return {"name": draw.weighted({name: 8, "nope": 1, "": 1}), "parameters": parameters}


def _place(draw: Draw) -> dict[str, Any]:
    size = 3 * SIDE * SIDE * 4
    return {
        "shared_memory_region": draw.pick(("r0", "r1", "r2", "nope", "", "..", 7)),
        "shared_memory_offset": draw.pick((0, 0, 4, size, 2**62, -1, "0")),
        "shared_memory_byte_size": draw.pick((size, size, size - 1, 0, 2**62, 2**63, None)),
    }
