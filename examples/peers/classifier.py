"""What all peers share: the same model, the same preprocessing and the same answer. Only the server around them differs.

Each service is started as `python PEER.py --model MODELS/NAME --session onnxruntime --port PORT --ready-file FILE`. `--session
onnxruntime` runs the model's fp32 graph as ONNX Runtime does by default; `--session headrace` gives the peer the session that
Headrace compiled for this machine, so that what differs is the server alone.
"""

import argparse
import json
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np

from headrace.runtime import backends
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import read_manifest
from headrace.runtime.images.preprocessing import Preprocessor
from headrace.specs import Signature

K = 5
BATCH, WAIT_SECONDS = 8, 0.01  # what the peers are given for their batching, in whatever words they have for it


class Classifier:
    """Encoded images to rows, rows to scores, scores to the five likeliest labels.

    `model` is a model's folder. Its version is read without its config.pbtxt, whose reader needs the protocol's generated
    messages: some peers register their own of the same names.
    """

    def __init__(self, model, session="onnxruntime"):
        path = max((entry for entry in Path(model).iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name))
        content, labels = read_manifest(path)
        signature = Signature.from_json(content["signature"])
        self.labels = labels["labels.txt"].decode().splitlines() if labels else None
        self.probabilities = content["task"][0]["probabilities"]
        self.decode = Preprocessor(content["preprocessing"]["steps"], pixels=signature.takes_pixels)  # bytes to one row
        if session == "headrace":
            self.scores = _compiled(path, load_artifact(model, trusted=True).plan_here())
        else:
            self.scores = _onnxruntime(path)

    def top(self, scores):
        """The five likeliest classes of each row [n, classes]: their indices int64 [n, 5] and probabilities float32 [n, 5]."""
        scores = scores.astype(np.float64)
        if not self.probabilities:
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
        return best, np.take_along_axis(scores, best, axis=1).astype(np.float32)

    def answers(self, scores):
        """What Headrace's `/v1/classify` says of the predictions, one dict per row of scores."""
        label = self.labels or [None] * scores.shape[1]
        return [
            {"predictions": [{"label": label[i], "index": i, "probability": p} for i, p in zip(*row, strict=True)]}
            for row in zip(*(part.tolist() for part in self.top(scores)), strict=True)
        ]


def _onnxruntime(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path / "model.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda rows: session.run(None, {name: rows})[0].reshape(len(rows), -1)


def _compiled(path, plan):
    sessions = {}
    for bucket in plan.buckets:
        choice = plan.choice(bucket)
        sessions[bucket] = backends.get(choice.backend).open(path, plan.target(bucket), choice.files)

    def scores(rows):
        bucket = min(size for size in sessions if size >= len(rows))
        padded = np.concatenate([rows, np.repeat(rows[-1:], bucket - len(rows), axis=0)])
        return sessions[bucket].run([padded])[0][: len(rows)].reshape(len(rows), -1)

    return scores


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True, help="a model's folder, as headrace migrate writes it")
    parser.add_argument("--session", choices=["onnxruntime", "headrace"], default="onnxruntime")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ready-file", type=Path, required=True, help="written as JSON with the port once the service answers")
    given = parser.parse_args()
    if not given.port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            given.port = free.getsockname()[1]
    return given


def announce(given):
    """Write the ready file as soon as the port takes connections; for services that give no sign of their own."""

    def wait():
        while True:
            try:
                socket.create_connection(("127.0.0.1", given.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                break
        write_ready(given)

    threading.Thread(target=wait, daemon=True).start()


def write_ready(given):
    aside = given.ready_file.with_name(f".{given.ready_file.name}.{os.getpid()}")
    aside.write_text(json.dumps({"http": given.port}))
    aside.replace(given.ready_file)
