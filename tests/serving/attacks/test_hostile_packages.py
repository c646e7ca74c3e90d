"""A package that means harm, as a stranger's repository would leave it or a stranger hand it on: served, it runs nothing and
reads nothing beside itself, unless somebody trusts it by word."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from headrace.errors import ArtifactError, BackendError
from headrace.runtime import backends
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.plan import Choice, Plan
from headrace.runtime.artifact.write_artifact import write_artifact
from headrace.runtime.base.fingerprint import fingerprint
from headrace.runtime.base.session import Target
from headrace.specs import FP32, Signature, TensorSpec
from headrace.trust import REMEDY, VARIABLE

SIDE, CLASSES = 16, 10
SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, SIDE, SIDE)),),
    outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", CLASSES)),),
)
CODE = sorted(name for name, backend in backends.discover().items() if backend.runs_code)


@pytest.fixture(autouse=True)
def nobody_is_trusted(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


class Payload:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def hostile_program(path: Path, marker: Path) -> None:
    """A program of torch.export whose example inputs are a pickle that touches `marker`."""

    class Flat(torch.nn.Module):
        def forward(self, images):
            return images.flatten(1)[:, :CLASSES]

    clean, payload = io.BytesIO(), io.BytesIO()
    torch.export.save(torch.export.export(Flat(), (torch.ones(1, 3, SIDE, SIDE),)), clean)
    torch.save(Payload(marker), payload)
    with zipfile.ZipFile(clean) as read, zipfile.ZipFile(path, "w") as written:
        for item in read.infolist():
            written.writestr(item, payload.getvalue() if "sample_inputs" in item.filename else read.read(item))


def linear(location: str | None = None) -> onnx.ModelProto:
    """Sums of flattened pixels; the weights in a file beside it where a `location` is given."""
    count = 3 * SIDE * SIDE
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [count, CLASSES], bytes(4 * count * CLASSES), raw=True)
    if location is not None:
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        entry = weights.external_data.add()
        entry.key, entry.value = "location", location
    nodes = [helper.make_node("Flatten", ["images"], ["flat"]), helper.make_node("MatMul", ["flat", "weights"], ["scores"])]
    ends = [
        [helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, ["batch", *spec.row_shape])]
        for spec in (SIGNATURE.inputs[0], SIGNATURE.outputs[0])
    ]
    graph = helper.make_graph(nodes, "linear", *ends, [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def package(models: Path, files: Path, backend: str, name: str) -> Path:
    choice = Choice(backend=backend, precision=FP32, files=(name,))
    plan = Plan(fingerprint=fingerprint(), choices={1: choice, 4: choice})
    return write_artifact(
        models / "net", name="net", files_from=files, signature=SIGNATURE, parity={}, plans=[plan], provenance={}
    )


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def test_a_program_in_a_package_runs_only_where_it_is_trusted(files, tmp_path, launch, request_to):
    marker = tmp_path / "executed"
    hostile_program(files / "model.pt2", marker)
    onnx.save(linear(), files / "model.onnx")
    folder = package(tmp_path / "models", files, "eager", "model.pt2")
    entry = {"name": "images", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE], "data": [0.0] * (3 * SIDE * SIDE)}
    with launch(folder.parent) as server:
        status, answer = request_to(server.http, "POST", "/v2/models/net/infer", json.dumps({"inputs": [entry]}).encode())
        assert status == 200, answer
        assert REMEDY in server.output
    assert not marker.exists()
    with pytest.raises(BackendError):  # no program comes of it, but the harm is done: so the attack is a real one
        load_artifact(folder, trusted=True).open()
    assert marker.exists()


def test_without_a_portable_graph_it_is_refused(files, tmp_path):
    hostile_program(files / "model.pt2", tmp_path / "executed")
    folder = package(tmp_path / "models", files, "eager", "model.pt2")
    with pytest.raises(BackendError, match="trust"):
        load_artifact(folder).open()
    assert not (tmp_path / "executed").exists()


def test_what_runs_code_is_known():
    assert {name for name in backends.discover() if name not in CODE} == {"onnxruntime", "openvino", "tensorrt"}


@pytest.mark.parametrize("backend", CODE)
def test_no_backend_that_runs_code_is_opened_untrusted(files, tmp_path, backend, monkeypatch):
    (files / "code.pt2").write_bytes(b"\x7fELF")
    onnx.save(linear(), files / "model.onnx")
    folder = package(tmp_path / "models", files, backend, "code.pt2")
    artifact = load_artifact(folder)
    assert {choice.backend for choice in artifact.plan_here().choices.values()} == {"onnxruntime"}
    assert REMEDY in artifact.plan_here().reason
    monkeypatch.setenv(VARIABLE, "1")
    assert REMEDY not in (load_artifact(folder).why_not(artifact.plans[0]) or "")


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("place", ["../../../secret", "{secret}", "folder/../../../../secret", "link"])
def test_weights_are_read_beside_the_graph_only(files, tmp_path, backend, place):
    """An answer would tell what stands in the file."""
    secret = tmp_path / "secret"
    secret.write_bytes(np.ones(3 * SIDE * SIDE * CLASSES, np.float32).tobytes())
    onnx.save(linear(place.format(secret=secret)), files / "model.onnx")
    folder = package(tmp_path / "models", files, backend, "model.onnx")
    assert (folder / "1" / "../../../secret").resolve() == secret
    if place == "link":
        (folder / "1" / "link").symlink_to(secret)
    with pytest.raises(BackendError, match=r"model\.onnx"):
        load_artifact(folder).open(1)


def test_a_graph_that_brings_an_engine_is_refused(tmp_path):
    graph = linear()
    graph.graph.node.append(helper.make_node("EPContext", [], ["more"], domain="com.microsoft", ep_cache_context="/tmp/e"))
    onnx.save(graph, tmp_path / "model.onnx")
    with pytest.raises(BackendError, match="machine code"):
        backends.get("tensorrt")._open([tmp_path / "model.onnx"], Target(device="cuda"))


def test_a_link_in_a_package_is_no_part_of_it(files, tmp_path):
    onnx.save(linear(), files / "model.onnx")
    folder = package(tmp_path / "models", files, "onnxruntime", "model.onnx")
    (folder / "1/model.onnx").rename(tmp_path / "elsewhere")
    (folder / "1/model.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="symbolic link"):
        load_artifact(folder)
