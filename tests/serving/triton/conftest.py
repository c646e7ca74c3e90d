"""A real Triton where `make test-triton` asks for one."""

import os
import shutil
from pathlib import Path

import pytest

from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.package import write_package
from headrace.runtime.artifact.plan import Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.triton.config import RunSettings
from headrace.serving.triton.install import installed
from headrace.serving.triton.run import TritonServer


@pytest.fixture(scope="session")
def triton():
    """The installed Triton; without one the test is skipped."""
    folder = os.environ.get("HEADRACE_TRITON")
    if not folder:
        pytest.skip("needs a real Triton, about two minutes and 350 MB: make test-triton")
    ready = installed(Path(folder))
    assert ready is not None, f"nothing usable is installed in {folder}"
    return ready


@pytest.fixture
def run_triton(triton, tmp_path):
    """run_triton(models, ...) is a TritonServer on free ports, to be entered."""

    def make(models, *, http_port=0, **settings):
        ports = {"http_port": http_port, "grpc_port": 0, "metrics_port": 0}
        return TritonServer(triton, models, tmp_path / "triton.log", RunSettings(**ports, **settings))

    return make


@pytest.fixture
def packaged(models, tmp_path):
    """Package `tiny` again with a plan: packaged(choices, device="cpu", threads=2)."""

    def package(choices=None, *, extra=(), device="cpu", threads=2):
        files = tmp_path / "files"
        files.mkdir()
        for name in ("model.onnx", *extra):
            shutil.copy(models / "tiny" / "1" / "model.onnx", files / name)
        known = load_artifact(models / "tiny")
        plans = [Plan(fingerprint=fingerprint(), choices=choices, device=device, threads=threads)] if choices else []
        return write_package(
            tmp_path / "models" / "tiny",
            name="tiny",
            files_from=files,
            signature=known.signature,
            preprocessing=known.preprocessing,
            labels=known.labels,
            parity={},
            plans=plans,
            provenance={},
            max_batch_size=8,
        ).parent

    return package
