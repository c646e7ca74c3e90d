"""A server of the Open Inference Protocol written from its text alone: JSON, HTTP, one model, nothing of this package."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

from tests.serving.verify.network import CLASSES, SIDE, scores
from tests.serving.verify.upload_server import reply, serving

METADATA: dict[str, Any] = {
    "name": "fish",
    "versions": ["1"],
    "platform": "pytorch",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, SIDE, SIDE]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, CLASSES]}],
}


@contextlib.contextmanager
def oip_server(
    infer: Callable[[np.ndarray], np.ndarray] = scores,
    *,
    metadata: Any = METADATA,
    server: Any = None,
    answer: Callable[[np.ndarray], Any] | None = None,
) -> Iterator[str]:
    """Serves `infer`, float32 rows to rows of scores; its address. `answer` makes the JSON of the outputs otherwise."""

    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        path = handler.path
        if path == "/v2":
            reply(handler, server or {"name": "by hand", "version": "0", "extensions": []})
        elif path == "/v2/models/fish":
            reply(handler, metadata)
        elif path == "/v2/models/fish/infer":
            request = json.loads(body)
            given = request["inputs"][0]
            rows = np.array(given["data"], np.float32).reshape(given["shape"])
            made = infer(rows)
            if answer is not None:
                reply(handler, answer(made))
                return
            output = {"name": "y", "datatype": "FP32", "shape": list(made.shape), "data": made.ravel().tolist()}
            reply(handler, {"model_name": "fish", "model_version": "1", "outputs": [output]})
        else:
            reply(handler, {"error": f"no such path {path}"}, 404)

    with serving(handle) as address:
        yield address
