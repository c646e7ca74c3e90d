"""Peers found in a folder; and other frameworks in the PyTorch service."""

import io
import json
import sys

import pytest
import torch
from rich.console import Console

from headrace.errors import BenchError
from headrace.serving.bench.config import BenchConfig
from tests.benchmarks.serving.frameworks import by_hand
from tests.benchmarks.serving.peers import bench, by_hand_services, peers_in, services_table
from tests.serving.bench.reporting.test_report import result

MANIFEST = {
    "environments": "envs",
    "install": "make them",
    "services": {
        "one": {"path": "/predict", "encoding": "form", "field": "image"},
        "two": {"path": "/", "encoding": "body", "field": ""},
    },
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "peers.json").write_text(json.dumps(MANIFEST))
    python = tmp_path / "envs" / "one" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return tmp_path


def test_installed_peers_become_services_and_others_are_named(folder):
    (one,), absent = peers_in(folder, folder / "models" / "net", session="headrace")
    assert (one.name, one.path, one.encoding, one.field) == ("one", "/predict", "form", "image")
    assert one.command[0] == str(folder / "envs" / "one" / "bin" / "python")  # not what the link leads to: that knows no venv
    assert one.command[1] == str(folder / "one_service.py")
    assert one.command[-4:] == ("--session", "headrace", "--ready-file", "{ready}")
    assert absent == {"two": "it is not installed; `make them` does that"}
    assert peers_in(folder, folder, names=["two"]) == ((), absent)


def test_a_folder_that_says_nothing_is_refused(folder, tmp_path):
    with pytest.raises(BenchError, match="no service 'three'"):
        peers_in(folder, folder, names=["three"])
    with pytest.raises(BenchError, match="--peers-from"):
        peers_in(folder / "nowhere", folder)
    (folder / "peers.json").write_text(json.dumps({**MANIFEST, "services": {"one": {"path": "/"}}}))
    with pytest.raises(BenchError, match="does not say which services"):
        peers_in(folder, folder)
    bad = {"one": {"path": "/", "encoding": "smoke", "field": ""}}
    (folder / "peers.json").write_text(json.dumps({**MANIFEST, "services": bad}))
    with pytest.raises(BenchError, match="smoke"):
        peers_in(folder, folder)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.conv(x).relu().mean((2, 3)))


@pytest.mark.parametrize("framework", ["eager", "onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)])
def test_a_framework_by_hand_computes_the_model(framework):
    torch.manual_seed(0)
    model = Net()
    run = by_hand(model, framework, (3, 8, 8), "cpu")
    row = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        # OpenVINO computes in bf16 by itself where the processor can.
        torch.testing.assert_close(run(row), model.eval()(row), rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_frameworks_are_measured_beside_the_baseline(colors, tmp_path):
    config = BenchConfig(
        models=colors.models,
        out=tmp_path / "out",
        baseline=colors.recipe,
        trust_repository=True,
        concurrency=(2,),
        rounds=1,
        seconds=0.3,
        warm_up_seconds=0.1,
    )
    console = Console(file=io.StringIO(), width=140)
    measured = bench(config, by_hand_services(config, ["onnxruntime"]), console=console)
    assert measured.ok, measured.warnings
    assert measured.services == ("baseline", "onnxruntime", "headrace")
    assert measured.agreement_of("onnxruntime").share == 1.0
    assert "is faster" in console.file.getvalue()
    assert "](bench.png)" in (tmp_path / "out" / "bench.md").read_text()
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_many_services_stand_below_each_other():
    console = Console(width=80, file=io.StringIO())
    console.print(services_table(result(services=("baseline", "peer", "headrace")), "photos").terminal())
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["16", "PyTorch", "baseline", "24.0", "41.7", "/", "83.3", "4.00x"] in lines
    assert ["peer", "50.0", "20.0", "/", "40.0", "2.00x"] in lines
