import subprocess
import sys

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from headrace import __version__
from headrace.errors import ArtifactError
from headrace.runtime import backends
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.runtime.backends.inductor import compiler
from headrace.runtime.backends.shared import cuda_toolkit
from headrace.runtime.base.fingerprint import fingerprint, versions
from headrace.runtime.inspect import doctor
from headrace.runtime.inspect.doctor import examine
from headrace.specs import FP32, Signature, TensorSpec


@pytest.fixture(scope="module")
def sections():
    return {section.title: section.rows for section in examine()}


def test_names_the_machine(sections):
    rows = {row.name: row for row in sections["This machine"]}
    assert rows["headrace"].version == __version__
    assert rows["python"].version == ".".join(map(str, sys.version_info[:3]))
    assert any("logical processors" in row.remark for row in rows.values())


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_says_what_helps_where_programs_for_a_gpu_do_not_link(monkeypatch, tmp_path):
    """torch's words are changed, since this machine may have no GPU; the program is compiled here."""
    (tmp_path / "include").mkdir()
    for name in ("cuda.h", "cuda_runtime_api.h"):
        (tmp_path / "include" / name).write_text('extern "C" int cuDeviceGetCount(int*);\n')
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_toolkit, "_driver", lambda: None)
    monkeypatch.delenv("LIBRARY_PATH", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert doctor._toolkit() == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    (row,) = doctor._toolkit()
    if not row.present:  # some machine's linker finds a driver by itself
        assert "-lcuda" in row.remark
        assert "install CUDA's toolkit" in row.remark
    (tmp_path / "lib64/stubs").mkdir(parents=True)
    command = [compiler(), "-shared", "-fPIC", "-x", "c++", "-", "-o", str(tmp_path / "lib64/stubs/libcuda.so")]
    subprocess.run(command, input='extern "C" int cuDeviceGetCount(int*) { return 0; }', text=True, check=True)
    (row,) = doctor._toolkit()
    assert (row.present, row.remark) == (True, f"in {tmp_path}")


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


def test_says_which_plans_of_a_repository_can_be_used_and_what_mends_the_others(tmp_path):
    (tmp_path / "files").mkdir()
    onnx.save(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Relu", ["images"], ["scores"])],
                "relu",
                [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 4])],
                [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 4])],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=9,
        ),
        tmp_path / "files" / "model.onnx",
    )
    rows = [TensorSpec(name=name, dtype="float32", shape=("batch", 4)) for name in ("images", "scores")]
    choices = {1: Choice(backend="openvino", precision=FP32, files=("model.onnx",))}
    here = fingerprint()
    old = {**here, "versions": {**here["versions"], "openvino": "2020.1"}}
    for name, fingerprints in (("both", (old, here)), ("none", ())):
        write_artifact(
            tmp_path / "models" / name,
            name=name,
            files_from=tmp_path / "files",
            signature=Signature(inputs=(rows[0],), outputs=(rows[1],)),
            parity={},
            plans=[Plan(fingerprint=where, choices=choices) for where in fingerprints],
            provenance={},
        )
    section = examine(tmp_path / "models")[-1]
    assert [(row.name, row.present) for row in section.rows] == [("both", False), ("both", True), ("none", False)]
    assert "pip install openvino==2020.1" in section.rows[0].remark
    assert section.rows[1].remark == "openvino fp32"
    assert section.rows[2].remark == f"no plan was measured; headrace tune {tmp_path}/models/none measures it here"
    (tmp_path / "models" / "both" / "1" / "model.onnx").write_bytes(b"")
    damaged = examine(tmp_path / "models")[-1].rows[0]
    assert not damaged.present
    assert "model.onnx" in damaged.remark


def test_what_is_missing_comes_with_the_line_that_brings_it(tmp_path, warm_python):
    """A process in which importing onnxruntime and openvino fails, as if they were not installed."""
    code = """
import sys
sys.modules["onnxruntime"] = sys.modules["openvino"] = None
from headrace.runtime.inspect.doctor import examine
for section in examine():
    for row in section.rows:
        print(row.present, row.name, row.remark, sep="|")
"""
    done = warm_python(["-c", code], cwd=tmp_path)
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


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_a_folder_that_holds_no_models_is_said(tmp_path, place):
    with pytest.raises(ArtifactError, match="no model in .*; name a models folder"):
        examine(tmp_path / place)
