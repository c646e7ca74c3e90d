import os
import subprocess
import sys

import pytest

from headrace import __version__
from headrace.runtime import backends
from headrace.runtime.base.fingerprint import versions
from headrace.runtime.inspect.doctor import examine


@pytest.fixture(scope="module")
def sections():
    return {section.title: section.rows for section in examine()}


def test_names_the_machine(sections):
    rows = {row.name: row for row in sections["This machine"]}
    assert rows["headrace"].version == __version__
    assert rows["python"].version == ".".join(map(str, sys.version_info[:3]))
    assert any("logical processors" in row.remark for row in rows.values())


def test_has_a_row_for_every_backend_in_order(sections):
    rows = sections["Backends"]
    assert [row.name for row in rows] == list(backends.discover())
    for row in rows:
        assert row.remark
        backend = backends.get(row.name)
        if row.present:
            assert all(f"{device}: " in row.remark for device in backend.devices)
            assert "fp32" in row.remark
            assert row.version
        else:
            assert ("pip install" if backend.missing() else "no usable CUDA device") in row.remark
    torch_row = next(row for row in rows if row.name == "eager")
    assert torch_row.version == versions()["torch"]


def test_what_is_missing_comes_with_the_line_that_brings_it(tmp_path):
    """A process in which importing onnxruntime and openvino fails, as if they were not installed."""
    code = """
import sys
sys.modules["onnxruntime"] = sys.modules["openvino"] = None
from headrace.runtime.inspect.doctor import examine
for section in examine():
    for row in section.rows:
        print(row.present, row.name, row.remark, sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=os.environ, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split("|")[1]: line.split("|") for line in done.stdout.splitlines()}
    for name in ("onnxruntime", "openvino"):
        assert rows[name][0] == "False"
        assert "pip install" in rows[name][2]
    assert rows["eager"][0] == "True"


def test_the_gpus_row_is_honest(sections):
    import torch

    rows = [row for row in sections["This machine"] if "GPU" in row.name or "NVIDIA" in row.name]
    assert rows
    assert all(row.present == torch.cuda.is_available() for row in rows)
