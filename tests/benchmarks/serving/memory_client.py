"""A client of system shared memory that goes on until it is killed: `chaos` cuts its object short, unlinks it, or ends it.

    python -m tests.benchmarks.serving.memory_client HOST:PORT NAME SEED

A line per request: "right", "told" for a clear error, and what was wrong. It maps nothing, since it would die of what is done.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from pathlib import Path

import numpy as np

from tests.serving.conftest import CLASSES, WEIGHTS

FOLDER = Path("/dev/shm")
_ROWS = 8
_INPUT, _OUTPUT = _ROWS * 3 * 16 * 16 * 4, _ROWS * CLASSES * 4


def _post(connection: http.client.HTTPConnection, path: str, body: dict[str, object]) -> tuple[int, bytes]:
    connection.request("POST", path, json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read()


def _once(connection: http.client.HTTPConnection, name: str, file: int, draw: np.random.Generator) -> str:
    rows = draw.normal(size=(_ROWS, 3, 16, 16)).astype(np.float32)
    if whole := os.fstat(file).st_size == _INPUT + _OUTPUT:  # else writing would make it longer again
        os.pwrite(file, rows.tobytes(), 0)
    place = {"shared_memory_region": name, "shared_memory_byte_size": _INPUT, "shared_memory_offset": 0}
    answered = place | {"shared_memory_byte_size": _OUTPUT, "shared_memory_offset": _INPUT}
    status, data = _post(
        connection,
        "/v2/models/tiny/infer",
        {
            "inputs": [{"name": "images", "datatype": "FP32", "shape": rows.shape, "parameters": place}],
            "outputs": [{"name": "scores", "parameters": answered}],
        },
    )
    if status != 200:
        return "told" if status in (400, 404, 503) and json.loads(data)["error"] else f"wrong: {status} {data[:200]!r}"
    if not whole:
        return "wrong: it was answered with 200, though the object is too short for the answer"
    found = os.pread(file, _OUTPUT, _INPUT)
    if len(found) < _OUTPUT:
        return "told"  # it was cut short after the answer
    scores = np.frombuffer(found, np.float32).reshape(_ROWS, CLASSES)
    right = np.allclose(scores, rows.reshape(_ROWS, -1) @ WEIGHTS, rtol=1e-3, atol=1e-4)
    return "right" if right else f"wrong: {scores.ravel()[:3]} is no answer to what was asked"


def main(address: str, name: str, seed: str) -> None:
    draw, connection = np.random.default_rng(int(seed)), http.client.HTTPConnection(address, timeout=30)
    path = FOLDER / name
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(file, _INPUT + _OUTPUT)
    region = f"/v2/systemsharedmemory/region/{name}/register"
    status, data = _post(connection, region, {"key": f"/{name}", "offset": 0, "byte_size": _INPUT + _OUTPUT})
    if status != 200 and path.exists() and os.fstat(file).st_size == _INPUT + _OUTPUT:
        print(f"wrong: registering was answered with {status} {data[:200]!r}", flush=True)
    while True:
        print(_once(connection, name, file, draw), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
