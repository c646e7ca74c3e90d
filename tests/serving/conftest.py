"""A models folder with small ONNX models whose right answers are known, and real servers on free ports."""

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from headrace.runtime.artifact.package import write_package
from headrace.runtime.base import session
from headrace.serving.images.fast_preprocessing import make_preprocessor
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec
from tests.serving.waiting_sessions import SECONDS
from tests.warm_python import SERVING, WarmPython

SIDE, CLASSES, BATCH = 16, 7, 8
LABELS = [f"class {letter}" for letter in "abcdefg"]
PREPROCESSING = Preprocessing(
    geometry=(Resize(size=20), CenterCrop(size=(SIDE, SIDE))), mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3)
)
SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, SIDE, SIDE)),),
    outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", CLASSES)),),
)
WEIGHTS = np.random.default_rng(7).normal(0, 0.05, (3 * SIDE * SIDE, CLASSES)).astype(np.float32)


def _onnx(path: Path, *, loops: int = 0, seconds: float = 0.0, broken: bool = False, scale: float = 1.0) -> None:
    """scores = scale * flatten(images) @ WEIGHTS, after `loops` small matrix products whose result does not matter.

    It takes `seconds` longer where `waiting_sessions` is installed.
    """
    nodes = [helper.make_node("Flatten", ["images"], ["flat"], axis=1)]
    initializers = [numpy_helper.from_array(np.float32(scale) * WEIGHTS, "weights")]
    if loops:
        square = np.eye(3 * SIDE * SIDE, dtype=np.float32)
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["going"], ["still_going"]),
                helper.make_node("MatMul", ["state", "square"], ["next_state"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("step", TensorProto.INT64, []),
                helper.make_tensor_value_info("going", TensorProto.BOOL, []),
                helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
            ],
            [
                helper.make_tensor_value_info("still_going", TensorProto.BOOL, []),
                helper.make_tensor_value_info("next_state", TensorProto.FLOAT, None),
            ],
        )
        initializers += [
            numpy_helper.from_array(square, "square"),
            numpy_helper.from_array(np.array(loops, np.int64), "trips"),
            numpy_helper.from_array(np.array(True), "always"),
        ]
        nodes.append(helper.make_node("Loop", ["trips", "always", "flat"], ["looped"], body=body))
    last = "looped" if loops else "flat"
    if broken:  # fails at run time for values that only some requests have: index out of range
        nodes += [
            helper.make_node("Cast", [last], ["as_int"], to=TensorProto.INT64),
            helper.make_node("GatherElements", ["flat", "as_int"], ["gathered"], axis=1),
        ]
        last = "gathered"
    nodes.append(helper.make_node("MatMul", [last, "weights"], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {SECONDS: str(seconds)} if seconds else {})
    onnx.save(model, path)


def _package(models: Path, name: str, tmp: Path, *, labels: list[str] = LABELS, **options) -> None:
    files = tmp / f"files-{name}"
    files.mkdir(parents=True)
    _onnx(files / "model.onnx", **options)
    write_package(
        models / name,
        name=name,
        files_from=files,
        signature=SIGNATURE,
        preprocessing=PREPROCESSING,
        labels=labels,
        parity={},
        plans=[],
        provenance={},
        max_batch_size=BATCH,
    )


@pytest.fixture(autouse=True)
def one_thread(monkeypatch) -> None:
    """What is not told how many threads to take takes one, in this process: there are as many workers as cores."""
    monkeypatch.setattr(session, "default_threads", lambda: 1)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """`tiny` (with its companions), `fragile` (fails on inputs beyond its index range), and `damaged` (one flipped byte)."""
    tmp = tmp_path_factory.mktemp("models")
    folder = tmp / "models"
    folder.mkdir()
    _package(folder, "tiny", tmp)
    _package(folder, "fragile", tmp, broken=True)
    _package(folder, "damaged", tmp)
    damaged = folder / "damaged" / "1" / "model.onnx"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    return folder


class Repository:
    """A models folder of one's own whose answers tell the version that gave them: scores are `scale` times the reference's."""

    def __init__(self, tmp: Path):
        self.tmp = tmp
        self.path = tmp / "models"
        self.path.mkdir()
        self._count = 0

    def package(self, name: str, *, scale: float = 1.0, **options) -> None:
        """Write (or replace) a model with its companions, as the command line does."""
        self._count += 1
        _package(self.path, name, self.tmp / str(self._count), scale=scale, **options)

    def add(self, name: str, version: int, *, scale: float, **options) -> Path:
        """Put one more version beside those that are there, in one step."""
        self._count += 1
        aside = self.tmp / str(self._count)
        _package(aside / "models", name, aside, scale=scale, **options)
        return (aside / "models" / name / "1").rename(self.path / name / str(version))

    def configure(self, name: str, text: str) -> None:
        """Add lines to a model's config.pbtxt."""
        path = self.path / name / "config.pbtxt"
        path.write_text(f"{path.read_text()}\n{text}\n")


@pytest.fixture
def repository(tmp_path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture(scope="session")
def slow_models(tmp_path_factory) -> Path:
    """`slow`: tens of milliseconds per batch in a `Server`, in which it waits, for what happens while a batch runs."""
    tmp = tmp_path_factory.mktemp("slow")
    folder = tmp / "models"
    folder.mkdir()
    _package(folder, "slow", tmp, seconds=0.1)
    return folder


@pytest.fixture(scope="session")
def busy_models(tmp_path_factory) -> Path:
    """`slow`, which computes for tens of milliseconds, wherever it runs."""
    tmp = tmp_path_factory.mktemp("busy")
    folder = tmp / "models"
    folder.mkdir()
    _package(folder, "slow", tmp, loops=500)
    return folder


@functools.cache
def _warm() -> WarmPython:
    """Servers are forks of it; it ends with this process. `headrace serve` as it is started is in test_real_clients.py."""
    return WarmPython(SERVING)


# Its engine and front ends are forks too: started as a user starts them, they are in attacks/test_hung_processes.py.
OURS = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
FORKS = f"{OURS}from tests.serving.forked_processes import install; install(); "
WAITS = f"{OURS}from tests.serving.waiting_sessions import install; install(); "
COMMAND = f"{FORKS}del sys.path[0]; sys.argv[0] = 'headrace'; from headrace.cli import main; main()"


class WarmCommand:
    """WarmCommand()("serve", ...) is `headrace serve ...`, as a fork of a process that has imported what a server does."""

    def __call__(self, *arguments, **options):
        return _warm().python(["-P", "-c", COMMAND, *map(str, arguments)], **{"cwd": Path.cwd(), **options})

    def popen(self, *arguments, **options):
        return _warm().popen(["-P", "-c", COMMAND, *map(str, arguments)], **options)

    def program(self, arguments, **options):
        """Another program that needs what a server does, as `subprocess.Popen`."""
        return _warm().popen(arguments, **options)

    def run(self, arguments):
        """The same to its end, as `subprocess.run` with the output captured."""
        return _warm().python(arguments, cwd=Path.cwd())


@pytest.fixture(scope="session")
def warm_command():
    return WarmCommand()


class Server:
    """A `headrace serve` process with its ports; `stop` is a clean SIGTERM.

    Without `forks`, its engine and front ends have interpreters of their own, as those that a user starts. A process that is
    silent for `hung_seconds` is ended, where that is given; one that does not serve yet, after twice that.
    """

    def __init__(
        self, models: Path, tmp: Path, *, new_session: bool = False, forks: bool = True, hung_seconds: int = 0, **config
    ):
        self.ready_file = tmp / "ready.json"
        self.log = tmp / "log.txt"
        settings = {
            "models": str(models),
            "http_port": 0,
            "grpc_port": 0,
            "metrics_port": 0,
            "ready_file": str(self.ready_file),
            "threads": 1,
            "instances": 1,
        }
        settings |= config
        code = (
            "import json, sys, pathlib; from headrace.serving.server import serve; "
            "from headrace.serving.config import ServeConfig; c = json.loads(sys.argv[1]); "
            "paths = ('models', 'ready_file', 'token_file', 'tls_cert', 'tls_key', 'tls_client_ca'); "
            "serve(ServeConfig.of(**{k: pathlib.Path(v) if v and k in paths else v for k, v in c.items()}))"
        )
        if forks and config.get("frontends"):
            code = FORKS + code
        if (models / "slow").exists():
            code = WAITS + code
        if hung_seconds:
            limits = f"supervisor._HUNG_SECONDS, supervisor._HUNG_AT_START = {hung_seconds}, {2 * hung_seconds}"
            code = f"from headrace.serving.processes import supervisor; {limits}; {code}"
        with self.log.open("wb") as log:
            self.process = _warm().popen(
                ["-c", code, json.dumps(settings, default=str)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=new_session,
            )
        end = time.monotonic() + 180
        while not self.ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"the server did not become ready:\n{self.output}")
            time.sleep(0.02)
        ports = json.loads(self.ready_file.read_text())
        assert ports["pid"] == self.process.pid
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{ports[name]}" for name in ("http", "grpc", "metrics"))
        self.url = f"http://{self.http}"

    @property
    def output(self) -> str:
        return self.log.read_text()

    def children(self, kind: str) -> list[psutil.Process]:
        """Its processes that are the "engine", or each a "frontend"."""
        found = []
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == kind or f"headrace.serving.processes.{kind}" in process.cmdline():
                    found.append(process)
        return found

    def stop(self, timeout: float = 120) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def server_class():
    return Server


@pytest.fixture
def start(tmp_path_factory):
    """Start servers of one's own: start(models, max_queue=4, ...)."""
    started = []

    def begin(models: Path, **config) -> Server:
        server = Server(models, tmp_path_factory.mktemp("server"), **config)
        started.append(server)
        return server

    yield begin
    for server in started:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def launch(tmp_path_factory):
    """A server for a `with` block, which must not have died by its end: launch(models, shared_memory=True, ...)."""

    @contextlib.contextmanager
    def run(models: Path, **config):
        started = Server(models, tmp_path_factory.mktemp("server"), **config)
        try:
            yield started
            assert started.process.poll() is None, started.output
            assert started.stop() == 0, started.output
        finally:
            started.process.kill()
            started.process.wait()

    return run


@pytest.fixture(scope="session")
def server(models, tmp_path_factory):
    """One server of `models` for all tests of a worker that only ask it something."""
    started = Server(models, tmp_path_factory.mktemp("server"), instances=2)
    yield started
    assert started.process.poll() is None, started.output
    assert started.stop() == 0, started.output


def photo(seed: int, size: tuple[int, int] = (40, 30), kind: str = "PNG") -> bytes:
    """An image that differs from every other seed's."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    data = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(data, kind)
    return data.getvalue()


@pytest.fixture(scope="session")
def make_photo():
    return photo


@pytest.fixture(scope="session")
def reference():
    """image bytes -> the row and the scores that are right for it; test_fast_preprocessing.py compares rows with Pillow's."""
    preprocess = make_preprocessor(PREPROCESSING.to_json()["steps"])

    def compute(image: bytes) -> tuple[np.ndarray, np.ndarray]:
        row = preprocess(image)
        return row, row.reshape(-1) @ WEIGHTS

    return compute


@pytest.fixture(scope="session")
def scores_of():
    return lambda images: images.reshape(len(images), -1) @ WEIGHTS


@pytest.fixture(scope="session")
def labels():
    return LABELS
