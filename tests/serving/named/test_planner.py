"""The plan that is measured beside a server: what is said of it, and that its process ends with the server."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.migrate.named.packaged import packaged
from headrace.runtime.artifact.artifact import load_artifact
from headrace.serving.named import planner as module
from headrace.serving.named.planner import Planner, unplanned
from tests.warm_python import FORKED


def graph(path, seed=0):
    """Images [n, 3, 4, 4] to scores [n, 5]."""
    weight = np.random.default_rng(seed).standard_normal((48, 5)).astype(np.float32)
    nodes = [helper.make_node("Flatten", ["images"], ["flat"]), helper.make_node("MatMul", ["flat", "weight"], ["scores"])]
    made = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 4, 4])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 5])], [numpy_helper.from_array(weight, "weight")],
    )  # fmt: skip
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def unmeasured(folder):
    graph(folder / "net.onnx")
    return packaged(str(folder / "net.onnx"), cache=folder / "cache")


@pytest.fixture
def models(tmp_path, once):
    """A models folder with one model that has no plan; tmp_path/net.onnx is what it comes from."""
    graph(tmp_path / "net.onnx")
    return Path(shutil.copytree(once("unmeasured", unmeasured), tmp_path / "models"))


def planner(models, tmp_path, said, *more):
    return Planner(str(tmp_path / "net.onnx"), ["--name", "net", *more], models, "net", said.append)


@pytest.fixture
def forked(monkeypatch, warm_torch):
    """The process is a fork of one that has torch imported, and takes its turn; with an interpreter of its own it is in the
    tests that end it."""

    class Subprocess:
        DEVNULL, PIPE, TimeoutExpired = subprocess.DEVNULL, subprocess.PIPE, subprocess.TimeoutExpired

        @staticmethod
        def Popen(command, *, text, preexec_fn, **options):
            assert command[1:4] == ["-P", "-m", "headrace"]
            process = warm_torch.popen(["-P", FORKED, *command[4:]], shares=True, **options)
            process.stderr = io.TextIOWrapper(process.stderr)
            return process

    monkeypatch.setattr(module, "subprocess", Subprocess)


def wait_for(condition, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.usefixtures("forked")
def test_the_plan_takes_the_place_of_none_and_the_gain_is_said(models, tmp_path):
    assert unplanned(models) == "net"
    said = []
    one = planner(models, tmp_path, said, "--max-tuning-seconds", "0.1")
    one.start()
    wait_for(lambda: len(said) == 2)
    assert "serves onnxruntime fp32, unmeasured" in said[0]
    assert said[1].startswith("net: planned: ")
    assert unplanned(models) is None
    assert load_artifact(models / "net").plans


@pytest.mark.usefixtures("forked")
def test_one_that_fails_leaves_what_serves_and_says_why(models, tmp_path):
    said = []
    one = planner(models, tmp_path, said)
    (tmp_path / "net.onnx").write_bytes(b"no weather")
    one.start()
    wait_for(lambda: len(said) == 2)
    assert "no plan was measured, and onnxruntime fp32 goes on to serve" in said[1]
    assert "no ONNX graph" in said[1]
    assert unplanned(models) == "net"


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    "edit",
    [
        lambda folder: graph(folder / "net.onnx", 1),
        # Whatever is another, the model is not placed; what may be: runtime/artifact/test_same_model.
        pytest.param(lambda folder: ["--name", "other"], marks=pytest.mark.slow),
    ],
)
def test_what_was_edited_meanwhile_does_not_take_the_place_of_what_serves(models, tmp_path, edit):
    """Whoever started the server has requests answered by the model as it was, and the cache knows it by its digest."""
    said = []
    graph_before = (models / "net" / "1" / "model.onnx").read_bytes()
    one = planner(models, tmp_path, said, "--max-tuning-seconds", "0.1", *(edit(tmp_path) or ()))
    one.start()
    wait_for(lambda: len(said) == 2)
    assert "was edited since it was packaged" in said[1]
    assert "start headrace serve again" in said[1]
    assert unplanned(models) == "net"
    assert (models / "net" / "1" / "model.onnx").read_bytes() == graph_before
    assert [path.name for path in models.iterdir()] == ["net"]
    one.stop()


def test_it_ends_when_it_is_stopped_and_leaves_the_package_whole(models, tmp_path):
    said = []
    one = planner(models, tmp_path, said)
    one.start()
    assert os.getpriority(os.PRIO_PROCESS, one.pid) == 19
    process = psutil.Process(one.pid)
    wait_for(lambda: len(process.children(recursive=True)) > 0)
    family = [process, *process.children(recursive=True)]
    one.stop()
    wait_for(lambda: not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family), 20)
    assert load_artifact(models / "net").plans == ()
    assert len(said) == 1


def test_it_does_not_outlive_a_server_that_is_killed(models, tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from headrace.serving.named.planner import Planner\n"
        "one = Planner(sys.argv[1], [], Path(sys.argv[2]), 'net', lambda line: None); one.start(); print(one.pid, flush=True)\n"
        "time.sleep(100)"
    )
    what = str(tmp_path / "net.onnx")
    server = subprocess.Popen([sys.executable, "-c", program, what, str(models)], stdout=subprocess.PIPE, text=True)
    process = psutil.Process(int(server.stdout.readline()))
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    server.stdout.close()
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 20)
