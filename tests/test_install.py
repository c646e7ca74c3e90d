"""The wheel in fresh environments, with one extra each: what it brings is enough for what it is for."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.serving.conftest import Repository

ROOT = Path(__file__).parents[1]
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
SCRIPT = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of the sources as git has them."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def fresh():
    """By the Python of a fresh environment what lay in it before anything was installed, in MiB: pip and what it brings."""
    return {}


@pytest.fixture
def environment(wheel, fresh, tmp_path):
    """environment("serve") -> the Python of a fresh environment with that extra, or with none."""

    def make(extra: str = "") -> Path:
        subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
        python = tmp_path / "venv/bin/python"
        fresh[python] = site_packages_mib(python)
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        command = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            ROOT / "constraints.txt",
            what,
        ]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return python

    return make


def run(python, *arguments, cwd, **variables):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "headrace", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=900, env=clean | variables)


def installed(python):
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    return {entry["name"].lower() for entry in json.loads(listed.stdout)}


def site_packages_mib(python):
    where = subprocess.run([str(python), "-c", SITE], capture_output=True, text=True, check=True).stdout.strip()
    said = subprocess.run(["du", "-sk", where], capture_output=True, text=True, check=True).stdout  # -m would round up
    return int(said.split()[0]) / 1024


def test_without_an_extra_it_helps_and_names_what_is_missing(environment, tmp_path):
    python = environment()
    assert not {"numpy", "torch", "fastapi"} & installed(python)
    for arguments in (
        ["--help"],
        ["--version"],
        ["serve", "--help"],
        ["migrate", "--help"],
        ["bench", "--help"],
        ["rules"],
        ["doctor"],
    ):
        done = run(python, *arguments, cwd=tmp_path)
        assert done.returncode == 0, (arguments, done.stderr)
    for command, extra in (("serve", "serve"), ("migrate", "migrate"), ("bench", "serve")):
        done = run(python, command, tmp_path, cwd=tmp_path)
        assert (done.returncode, f"pip install 'headrace[{extra}]'" in done.stderr) == (2, True), done.stderr


def test_serve_answers_without_torch_in_less_than_300_mib(environment, fresh, repository, tmp_path):
    python = environment("serve")
    assert not {"torch", "matplotlib", "onnx", "onnxscript", "tritonclient", "openvino"} & installed(python)
    assert site_packages_mib(python) - fresh[python] < 300
    repository.package("tiny")
    ready = tmp_path / "ready.json"
    command = [python, "-m", "headrace", "serve", repository.path, f"--ready-file={ready}"]
    command += [f"--{name}-port=0" for name in ("http", "grpc", "metrics")]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([*map(str, command)], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 120
        while not ready.exists():
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.05)
        address = f"http://127.0.0.1:{json.loads(ready.read_text())['http']}/v2/models/tiny"
        described = json.load(urllib.request.urlopen(address, timeout=30))
        (tensor,) = described["inputs"]
        shape = [1, *tensor["shape"][1:]]
        data = np.full(shape, 0.5).ravel().tolist()
        body = {"inputs": [{"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "data": data}]}
        answer = json.load(urllib.request.urlopen(f"{address}/infer", json.dumps(body).encode(), timeout=30))
        assert np.isfinite(answer["outputs"][0]["data"]).all()
    finally:
        server.terminate()
        assert server.wait(60) == 0


def test_bench_measures_without_torch(environment, repository, tmp_path):
    python = environment("bench")
    assert "torch" not in installed(python)
    repository.package("tiny")
    done = run(
        python, "bench", repository.path, "--model", "tiny", "--concurrency", "2", "--rounds", "1", "--seconds", "0.5",
        "--out", tmp_path / "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert [*(tmp_path / "out").glob("*.json")]


def test_migrate_compiles_a_model(environment, tmp_path):
    python = environment("migrate")
    assert not {"fastapi", "matplotlib", "openvino"} & installed(python)
    (tmp_path / "net.py").write_text(SCRIPT)
    done = run(
        python, "compile", tmp_path / "net.py:Net", "--input-size", "3,32,32", "--out", tmp_path / "models",
        "--max-tuning-seconds", "5", cwd=tmp_path, HEADRACE_CACHE="off",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert [*(tmp_path / "models").glob("*/1/model.onnx")]
