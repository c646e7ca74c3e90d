"""What other model servers serve, migrated: an archive of TorchServe's, and classes that only a server calls."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import headrace
from headrace.errors import MigrateError
from headrace.migrate.stages.migrated_copy import check_output

MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.top = nn.Linear(4, 3)

    def forward(self, x):
        return self.top(self.body(x))
"""
PREPARE = """
import numpy as np
import torch


def prepared(image):
    pixels = np.asarray(image.convert("RGB").resize((24, 16)), np.float32) / 255
    return torch.from_numpy((pixels - 0.5) / 0.25).permute(2, 0, 1)
"""
HANDLER = """
import torch
from ts.torch_handler.vision_handler import VisionHandler
from ts.utils.util import map_class_to_label

from prepare import prepared


class Animals(VisionHandler):
    def image_processing(self, image):
        return prepared(image)

    def postprocess(self, data):
        values, numbers = torch.softmax(data, 1).topk(2, dim=1)
        return map_class_to_label(values.tolist(), self.mapping, numbers.tolist())
"""
API = """
import base64
import io

import litserve as ls
import torch
from PIL import Image

from model import Net
from prepare import prepared

LABELS = ["ant", "bee", "cat"]


class Animals(ls.LitAPI):
    def setup(self, device):
        self.model = Net()
        self.model.load_state_dict(torch.load("net.pth", map_location=device))
        self.model.eval()

    def decode_request(self, request):
        return prepared(Image.open(io.BytesIO(base64.b64decode(request["image"]))))

    def predict(self, x):
        with torch.inference_mode():
            return self.model(x[None])

    def encode_response(self, output):
        return {"label": LABELS[int(output.argmax())]}


if __name__ == "__main__":
    ls.LitServer(Animals()).run(port=8000)
"""
TRITON = """
import io

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from PIL import Image

from model import Net
from prepare import prepared


class TritonPythonModel:
    def initialize(self, args):
        self.model = Net()
        self.model.load_state_dict(torch.load("net.pth"))
        self.model.eval()

    def execute(self, requests):
        answers = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            images = torch.stack([prepared(Image.open(io.BytesIO(row))) for row in data.ravel()])
            with torch.no_grad():
                scores = self.model(images).softmax(1).numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", scores)]))
        return answers
"""
SERVICE = """
import bentoml
import torch
from PIL import Image

from model import Net
from prepare import prepared


@bentoml.service
class Animals:
    def __init__(self):
        self.model = Net()
        self.model.load_state_dict(torch.load("net.pth"))
        self.model.eval()

    @bentoml.api
    def classify(self, image: Image.Image) -> list[float]:
        with torch.no_grad():
            return self.model(prepared(image)[None]).softmax(1)[0].tolist()
"""
NAMES = {"0": "ant", "1": ["n2", "bee"], "2": "cat"}


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = {"body.0.weight": (4, 3, 3, 3), "body.0.bias": (4,), "top.weight": (3, 4), "top.bias": (3,)}
    return {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "animals"
    root.mkdir()
    (root / "model.py").write_text(MODEL)
    (root / "prepare.py").write_text(PREPARE)
    torch.save(weights(), root / "net.pth")
    os.utime(root / "net.pth", (1e9, 1e9))
    return root


def packed(folder: Path, model: dict[str, str]) -> Path:
    path = folder.with_suffix(".mar")
    with zipfile.ZipFile(path, "w") as file:
        for item in sorted(folder.iterdir()):
            file.write(item, item.name)
        file.writestr("index_to_name.json", json.dumps(NAMES))
        file.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"modelName": "animals", **model}}))
    return path


def check_package(models: Path, expected: nn.Module | None = None) -> None:
    """The weights are the file's, and the preprocessing is the one of `prepared`."""
    (found,) = models.glob("*/1/model.onnx")
    held = [numpy_helper.to_array(item) for item in onnx.load(str(found)).graph.initializer]
    for name, value in weights().items():
        forms = (value.numpy(), value.numpy().T)
        assert any(np.array_equal(one, form) for one in held for form in forms), name
    manifest = json.loads(found.with_name("headrace.json").read_text())
    steps = {step["op"]: step for step in manifest["preprocessing"]["steps"]}
    assert (steps["resize"]["size"], steps["normalize"]["mean"], steps["normalize"]["std"]) == ([16, 24], [0.5] * 3, [0.25] * 3)


@pytest.mark.usefixtures("torch_sandbox")
def test_an_archive_becomes_a_package_with_its_weights_preprocessing_and_labels(folder: Path, tmp_path: Path) -> None:
    (folder / "handler.py").write_text(HANDLER)
    archive = packed(folder, {"handler": "handler.py", "modelFile": "model.py", "serializedFile": "net.pth"})
    before = archive.read_bytes()
    out = tmp_path / "out"
    report = headrace.migrate(archive, out=out, planned=False, verify=False)
    model = report.models[0]
    assert (model.parity.status, bool(model.artifact), model.random_weights) == ("passed", True, False), report.findings
    assert report.repository == str(archive)
    assert (out / "models/Net/labels.txt").read_text().split() == ["ant", "bee", "cat"]
    check_package(out / "models")
    assert archive.read_bytes() == before
    assert json.loads((out / "headrace-report.json").read_text())["repository"] == str(archive)
    check_output(archive, out)  # which may be written again
    assert not report.exit_status & 6


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.parametrize(
    ("name", "text"), [("server.py", API), ("model_repository/animals/1/run.py", TRITON), ("service.py", SERVICE)]
)
def test_the_model_that_a_server_calls_is_seen_in_a_preview(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    report = headrace.migrate(folder)
    model = report.models[0]
    assert (model.name, model.input, model.classes, model.built) == ("Net", [3, 16, 24], 3, True), report.findings
    codes = {finding.code for finding in report.findings}
    assert not codes & {"PS503", "PS015", "PS500", "PS516"}, report.findings


@pytest.mark.usefixtures("torch_sandbox")
def test_torchscript_in_an_archive_is_packaged(folder: Path, tmp_path: Path) -> None:
    names: dict[str, type[nn.Module]] = {}
    exec(compile(MODEL, str(folder / "model.py"), "exec"), names)
    net = names["Net"]()
    net.load_state_dict(weights())
    torch.jit.save(torch.jit.script(net.eval()), folder / "net.pt")
    (folder / "net.pth").unlink()
    (folder / "model.py").unlink()
    (folder / "handler.py").write_text(HANDLER)
    archive = packed(folder, {"handler": "handler.py", "serializedFile": "net.pt"})
    out = tmp_path / "out"
    report = headrace.migrate(archive, out=out, planned=False, verify=False)
    model = report.models[0]
    assert (model.name, model.parity.status, bool(model.artifact)) == ("Net", "passed", True), report.findings
    check_package(out / "models")


def test_an_archive_is_not_changed_in_place_and_a_hostile_one_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    (folder / "handler.py").write_text(HANDLER)
    archive = packed(folder, {"handler": "handler.py"})
    with pytest.raises(MigrateError, match="model archive, which --write does not change"):
        headrace.migrate(archive, write=True)
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("../../outside.py", "")
    with pytest.raises(MigrateError, match=r"\'../../outside.py\' leads out"):
        headrace.migrate(archive, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
