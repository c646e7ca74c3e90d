"""One real server for the files here: its health is checked, its metrics are what dashboards and rules may name."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from dockerfile_parse import DockerfileParser
from onnx import TensorProto, helper, numpy_helper

from headrace.cli import app
from headrace.runtime.artifact.package import write_package
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.specs import FP32, CenterCrop, Preprocessing, Resize, Signature, TensorSpec

DOCKER = Path(__file__).parents[2] / "docker"
SIDE = 8
CHOICE = Choice(backend="onnxruntime", precision=FP32, files=("model.onnx",))


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A model repository with `tiny`, which answers two classes, and its companions."""
    folder = tmp_path_factory.mktemp("models")
    files = tmp_path_factory.mktemp("files")
    weights = np.random.default_rng(0).normal(size=(3 * SIDE * SIDE, 2)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["images"], ["flat"]), helper.make_node("MatMul", ["flat", "weights"], ["scores"])],
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), files / "model.onnx")
    write_package(
        folder / "tiny",
        name="tiny",
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, SIDE, SIDE)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 2)),),
        ),
        preprocessing=Preprocessing(
            geometry=(Resize(size=SIDE), CenterCrop(size=(SIDE, SIDE))), mean=(0.5,) * 3, std=(0.5,) * 3
        ),
        labels=["one", "other"],
        parity={},
        plans=[Plan(fingerprint=fingerprint(), choices=dict.fromkeys((1, 2), CHOICE), threads=1)],
        provenance={},
        max_batch_size=2,
    )
    return folder


class Server:
    """`headrace serve` with free ports."""

    def __init__(self, models: Path, folder: Path) -> None:
        ready = folder / "ready.json"
        ports = [f"--{name}-port=0" for name in ("http", "grpc", "metrics")]
        limits = ["--threads=1", "--instances=1", "--response-cache-bytes=1000000", "--shadow=0.5"]
        self.log = folder / "log.txt"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "headrace", "serve", str(models), f"--ready-file={ready}", *ports, *limits]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 180
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"the server did not become ready:\n{self.log.read_text()}")
            time.sleep(0.05)
        addresses = json.loads(ready.read_text())
        self.http, self.metrics = (f"127.0.0.1:{addresses[name]}" for name in ("http", "metrics"))

    def infer(self, value: float = 0.5) -> None:
        """Send one request; the same value again is answered from the response cache."""
        image = {"name": "images", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE], "data": [value] * (3 * SIDE * SIDE)}
        body = json.dumps({"inputs": [image]}).encode()
        urllib.request.urlopen(f"http://{self.http}/v2/models/tiny/infer", body, timeout=30).close()


@pytest.fixture(scope="session")
def server(models, tmp_path_factory):
    started = Server(models, tmp_path_factory.mktemp("server"))
    yield started
    started.process.terminate()
    try:
        assert started.process.wait(60) == 0, started.log.read_text()
    finally:
        started.process.kill()


@pytest.fixture(scope="session")
def docker() -> Path:
    """The folder docker/."""
    return DOCKER


@pytest.fixture(scope="session")
def stages():
    """stages("Dockerfile") -> {stage: [(instruction, value), ...]}, without comments; what stands before the first is ""."""

    def read(name: str) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {"": []}
        stage = ""
        for entry in DockerfileParser(str(DOCKER / name)).structure:
            if entry["instruction"] == "FROM":
                stage = entry["value"].partition(" AS ")[2]
                found[stage] = []
            if entry["instruction"] != "COMMENT":
                found[stage].append((entry["instruction"], entry["value"]))
        return found

    return read


@pytest.fixture(scope="session")
def parse_serve():
    """Arguments of the image -> what the command line makes of them; fails for flags that do not exist."""

    def parse(arguments: list[str]) -> dict:
        command = typer.main.get_command(app)
        assert arguments[0] == "serve", arguments
        return command.get_command(None, "serve").make_context("serve", list(arguments[1:])).params

    return parse
