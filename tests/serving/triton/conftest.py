"""A real Triton where `make test-triton` asks for one."""

import os
from pathlib import Path

import pytest

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
