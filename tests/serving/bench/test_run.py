"""The benchmark from end to end: real services, real load, a model that tells red, green and blue apart."""

import io
import json
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from rich.console import Console

from headrace.errors import AmbiguousError, BenchError
from headrace.runtime.artifact.package import write_package
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.base.session import default_threads
from headrace.runtime.base.task import Head, Task
from headrace.serving.bench import run, servers
from headrace.serving.bench.config import BenchConfig
from headrace.serving.bench.reporting.caveats import TRIES
from headrace.serving.bench.reporting.report import bench_report
from headrace.serving.bench.servers import Service, machine_seconds
from headrace.specs import FP32, Preprocessing, Resize, Signature, TensorSpec

WEIGHT = 4 * np.eye(3, dtype=np.float32)
PREPROCESSING = Preprocessing(
    geometry=(Resize(size=(24, 24)),), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), source="evaluate.py:1"
)
COLORS = ("blue", "green", "red")  # in the order of an ImageFolder; the labels are in the order of the channels
LABELS = ("red", "green", "blue")
SOURCE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 3)
    def forward(self, x):
        return self.head(x.mean((2, 3)))
model = Net()
with torch.no_grad():
    model.head.weight.copy_(4 * torch.eye(3))
    model.head.bias.zero_()
"""


HEAD = Head(output="scores", kind="single-label")


def write_model(folder, name="colors", *, preprocessing=PREPROCESSING, head=HEAD):
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight"], ["scores"]),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 24, 24])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph(nodes, "colors", [images], [scores], [numpy_helper.from_array(WEIGHT, "weight")])
    files = folder / f"{name}-files"
    files.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), files / "model.onnx")
    choice = Choice(backend="onnxruntime", precision=FP32, files=("model.onnx",))
    write_artifact(
        folder / "models" / name,
        name=name,
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 24, 24)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 3)),),
        ),
        preprocessing=preprocessing,
        labels=LABELS if head.classifies else None,
        task=Task((head,)),
        parity={"status": "not-run", "why": "written by hand"},
        plans=(Plan(fingerprint=fingerprint(), choices={1: choice, 4: choice}),),
        provenance={},
    )
    return folder / "models"


def write_repository(root):
    for number, color in enumerate(COLORS):
        for shade in range(6):
            pixels = np.full((30, 40, 3), 20 + shade, np.uint8)
            pixels[..., LABELS.index(color)] = 200 + 5 * shade
            path = root / "data" / "test" / color / f"{number}{shade}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return {"root": str(root), "directory": ".", "script": "evaluate.py", "argv": [], "source": SOURCE, "expression": "model"}


def processes():
    return {child.pid for child in psutil.Process().children(recursive=True)}


def measure(tmp_path, *, others=(), alone=False, head=HEAD, **options):
    console = Console(file=io.StringIO(), width=150)
    settings = {
        "concurrency": (1, 3),
        "rounds": 2,
        "restart": False,
        "seconds": 0.2,
        "warm_up_seconds": 0.1,
        "out": tmp_path / "out",
        "trust_repository": options.get("baseline") is not None,
        **options,
    }
    before = processes()
    config = BenchConfig(models=write_model(tmp_path, head=head), **settings)
    if others:
        result = run.measure(config, console=console, others=others, alone=alone)
        console.print(bench_report(result).terminal())
    else:
        result = run.bench(config, console=console)
    assert processes() <= before
    return result, console.file.getvalue()


@pytest.fixture
def forked(warm_torch, forked_but_the_baseline):
    """Our services and load generators are forks of processes that have imported what they need. With interpreters of their
    own they are in the interrupted benchmark, the baseline in the first comparison."""
    forked_but_the_baseline.Popen_of_baseline = warm_torch.popen


@pytest.fixture
def forked_but_the_baseline(warm_command, monkeypatch):
    assert warm_command("--version").returncode == 0  # so that its process is there before any is counted

    class Subprocess:
        DEVNULL, STDOUT, TimeoutExpired = subprocess.DEVNULL, subprocess.STDOUT, subprocess.TimeoutExpired
        Popen_of_baseline = None

        @staticmethod
        def Popen(command, **options):
            if tuple(command[1:3]) == ("-m", "headrace"):
                return warm_command.popen(*command[3:], **options)
            if "headrace.serving.bench.load.loadgen" in command:
                return warm_command.program(command[1:], **options)
            if Subprocess.Popen_of_baseline and "headrace.serving.bench.baseline" in command:
                return Subprocess.Popen_of_baseline(command[1:], **options)
            return subprocess.Popen(command, **options)

    monkeypatch.setattr(servers, "subprocess", Subprocess)
    return Subprocess


@pytest.mark.usefixtures("forked")
def test_a_measurement_that_other_programs_disturb_is_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "TRIES", TRIES)
    # Half a machine more than the machine says: what programs really get of it is up to what else there is.
    monkeypatch.setattr(run, "machine_seconds", lambda: machine_seconds() + default_threads() / 2 * time.monotonic())
    result, text = measure(tmp_path, concurrency=(1,), rounds=1, seconds=0.2)
    (found,) = result.measurements
    assert found.repeated == TRIES - 1
    assert found.other_cores > 0
    assert result.to_json()["measurements"][0]["repeated"] == TRIES - 1
    assert "1 of 1 measurements were repeated, because other programs kept more than 10% of the cores busy" in " ".join(
        text.split()
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("embedding", "embedding (a cosine of at least 0.99)"),
        # Compared as vectors are, by what each kind is: load/test_answers.
        pytest.param("multi-label", "labels above their thresholds", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("forked")
def test_vectors_and_labels_are_measured_and_compared_as_what_they_are(tmp_path, kind, said):
    options = {"head": Head(output="scores", kind=kind), "rounds": 1, "concurrency": (1,)}
    result, text = measure(tmp_path, baseline=write_repository(tmp_path / "repository"), **options)
    assert result.ok, result.warnings
    assert result.agreement.agreed == result.agreement.compared == 18
    assert result.agreement.distinct > 1
    assert result.accuracy == {}
    assert f"Images with the same {said}: 100 % of 18." in " ".join(text.split())


def test_over_grpc_only_a_best_class_is_asked_for(tmp_path):
    with pytest.raises(BenchError, match="leave --protocol http"):
        measure(tmp_path, head=Head(output="scores", kind="embedding"), protocol="grpc")


@pytest.mark.usefixtures("forked_but_the_baseline")
def test_baseline_and_headrace_are_measured_in_turn_and_agree(tmp_path):
    result, text = measure(tmp_path, baseline=write_repository(tmp_path / "repository"))
    assert result.ok, result.warnings
    assert result.services == ("baseline", "headrace")
    assert len(result.measurements) == 2 * 2 * 2
    # The order alternates by round, each of which measures every concurrency.
    order = [(one.round, one.concurrency, one.service[0]) for one in result.measurements]
    assert order[:4] == [(0, 1, "b"), (0, 1, "h"), (0, 3, "b"), (0, 3, "h")]
    assert order[4:] == [(1, 1, "h"), (1, 1, "b"), (1, 3, "h"), (1, 3, "b")]
    assert all(one.load.completed > 0 and one.server_cpu_ms > 0 and one.other_cores >= 0 for one in result.measurements)
    assert result.agreement.agreed == result.agreement.compared == 18
    assert result.accuracy == {"baseline": 1.0, "headrace": 1.0}
    assert result.ratio(3).median > 0
    assert "100 % of 18" in text
    assert "data/test of the repository" in text
    data = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert data["plan"]["winners"]["1"] == {"backend": "onnxruntime", "precision": "fp32"}
    assert not data["plan"]["portable"]
    assert data["environment"]["versions"]["torch"]
    assert data["servers"]["baseline"]["allocator"]
    assert data["servers"]["baseline"]["ready"]["threads"] >= 1
    assert data["answers"]["headrace"] == [2] * 6 + [1] * 6 + [0] * 6
    with Image.open(tmp_path / "out" / "bench.png") as image:
        assert image.format == "PNG"
    assert "Traceback" not in "".join(log.read_text() for log in (tmp_path / "out" / "logs").glob("*.log"))


@pytest.mark.usefixtures("forked")
def test_without_a_baseline_only_headrace_is_measured_on_synthetic_photos(tmp_path):
    result, text = measure(tmp_path, concurrency=(2,), rounds=1, max_images=4)
    assert result.ok, result.warnings
    assert result.services == ("headrace",)
    assert result.agreement is None
    assert result.images["synthetic"]
    assert "synthetic" in text
    assert "PyTorch baseline" not in text


def test_grpc_needs_the_companion_that_takes_images(tmp_path):
    with pytest.raises(BenchError, match="colors_classify"):
        measure(tmp_path, concurrency=(2,), rounds=1, protocol="grpc")


@pytest.mark.slow  # gRPC under load, and by several processes: bench/load/test_grpc_load and test_loadgen
def test_grpc_is_measured_by_several_processes(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "write_artifact", write_package)  # the model with its companions
    result, _ = measure(tmp_path, concurrency=(2,), rounds=1, max_images=4, seconds=0.5, protocol="grpc", processes=2)
    assert result.ok, result.warnings
    assert result.settings["protocol"] == "grpc"
    assert result.measurements[0].load.completed > 0
    assert None not in result.answers["headrace"]


@pytest.mark.usefixtures("forked")
def test_a_baseline_that_does_not_start_is_shown_and_everything_is_ended(tmp_path):
    recipe = {**write_repository(tmp_path / "repository"), "source": "raise RuntimeError('weights are missing')"}
    before = processes()
    with pytest.raises(BenchError, match="weights are missing"):
        run.bench(
            BenchConfig(models=write_model(tmp_path), out=tmp_path / "out", baseline=recipe, trust_repository=True),
            console=Console(file=io.StringIO()),
        )
    assert processes() <= before
    assert not (tmp_path / "out" / "bench.json").exists()


PEER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        sent = self.rfile.read(int(self.headers["content-length"]))
        assert b'name="picture"' in sent
        body = json.dumps({"outputs": [{"name": "index", "data": [1]}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open(sys.argv[1], "w").write(json.dumps({"http": server.server_port}))
server.serve_forever()
"""


@pytest.mark.slow  # what peers are: test_peers; that services are measured in turn: the first test here
def test_peers_are_measured_too_and_those_that_do_not_start_left_out(tmp_path):
    peer = Service(
        name="peer", command=(sys.executable, "-c", PEER, "{ready}"), path="/predict", encoding="form", field="picture"
    )
    broken = Service(name="broken", command=(sys.executable, "-c", "raise SystemExit('its license ran out')"), path="/")
    raising = Service(name="raising", command=(sys.executable, "-c", "import nothing_like_it"), path="/")
    repository = write_repository(tmp_path / "repository")
    result, text = measure(tmp_path, baseline=repository, others=(peer, broken, raising), concurrency=(2,), rounds=1)
    assert result.services == ("baseline", "peer", "headrace")
    assert any("broken is left out" in note and "its license ran out" in note for note in result.warnings)
    assert "raising is left out: ModuleNotFoundError: No module named 'nothing_like_it'" in result.warnings
    assert result.answers["peer"] == (1,) * 18
    assert "peer" in text


# Without restarts is what every other test here does.
@pytest.mark.parametrize("restart", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("forked")
def test_every_round_starts_the_services_anew_unless_told_otherwise(tmp_path, restart):
    program = "import os; print('started', os.getpid(), flush=True)\n" + PEER
    peer = Service(name="peer", command=(sys.executable, "-c", program, "{ready}"), path="/", encoding="form", field="picture")
    result, text = measure(tmp_path, others=(peer,), alone=True, concurrency=(1, 2), rounds=2, restart=restart, max_images=4)
    assert len(result.measurements) == 2 * 2
    log = (tmp_path / "out" / "logs" / "peer.log").read_text()
    starts = [line for line in log.splitlines() if line.startswith("started")]
    assert len(starts) == len(set(starts)) == (2 if restart else 1)
    assert ("anew" in " ".join(text.split())) == restart


@pytest.mark.usefixtures("forked")
def test_images_that_no_service_can_read_end_it(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(BenchError, match="headrace answered none of the images"):
        measure(tmp_path, images=(tmp_path / "a.jpg",))


# SIGTERM unwinds the stack as SIGINT does by itself.
@pytest.mark.parametrize("stop", [pytest.param("SIGINT", marks=pytest.mark.slow), "SIGTERM"])
def test_an_interrupted_benchmark_leaves_no_process(tmp_path, stop):
    program = (
        "import sys; from pathlib import Path; from headrace.serving.bench.run import BenchConfig, bench;"
        f"bench(BenchConfig(models=Path({str(write_model(tmp_path))!r}), out=Path({str(tmp_path / 'out')!r}), seconds=60))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        request = tmp_path / "out" / "logs" / "loadgen.request.json"
        end = time.monotonic() + 120
        while not (request.exists() and '"closed"' in request.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        children = []
        while len(children) < 2:  # the server and the load generator
            assert time.monotonic() < end
            time.sleep(0.5)
            children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.Signals[stop])
        try:
            assert process.wait(120) != 0
        finally:
            process.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def test_a_model_is_needed_and_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BenchError, match="no model in"):
        run.bench(BenchConfig(models=tmp_path / "empty", out=tmp_path / "out"))
    models = write_model(tmp_path, "one")
    write_model(tmp_path, "two")
    with pytest.raises(AmbiguousError, match="--model two"):
        run.bench(BenchConfig(models=models, out=tmp_path / "out"))


def test_a_model_without_preprocessing_cannot_be_sent_images(tmp_path):
    models = write_model(tmp_path, preprocessing=None)
    with pytest.raises(BenchError, match="no recorded preprocessing"):
        run.bench(BenchConfig(models=models, out=tmp_path / "out"))


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": ()},
        {"concurrency": (4, 4)},
        {"rounds": 0},
        {"seconds": 0},
        {"k": 0},
        {"protocol": "udp"},
        {"protocol": "grpc", "baseline": {}},
        {"processes": 2},
    ],
)
def test_settings_are_validated(tmp_path, change):
    with pytest.raises(ValueError, match=next(iter(change))):
        BenchConfig(models=tmp_path, out=tmp_path, **change)
