"""What the pages' commands find in the reader's folder: a repository, photos, packaged models, and the rest that they name."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

LABELS = ("leaf", "rose", "sea")
CHANNEL = {"rose": 0, "leaf": 1, "sea": 2}  # the color that most of a photo's pixels have
LEAST_FOR_INT8 = 80  # images: 16 set its ranges and 64 judge it
MODEL = """
from torch import nn


class ResNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        return self.fc(self.pool(self.stem(x).relu()).flatten(1))


def resnet50(classes=3):
    return ResNet(classes)
"""
PREPARED = """
import numpy as np
import torch
from PIL import Image


def prepared(image):
    pixels = np.asarray(image.convert("RGB").resize((24, 16)), np.float32) / 255
    return torch.from_numpy((pixels - 0.5) / 0.25).permute(2, 0, 1)
"""
EVALUATE = """
from pathlib import Path

import torch
from PIL import Image

from model import resnet50
from prepared import prepared

LABELS = ["leaf", "rose", "sea"]


def main():
    model = resnet50()
    model.load_state_dict(torch.load("weights.pth"))
    model.eval()
    right = total = 0
    for number, label in enumerate(LABELS):
        images = torch.stack([prepared(Image.open(path)) for path in sorted(Path("data", label).iterdir())])
        with torch.no_grad():
            scores = model(images)
        right += int((scores.argmax(1) == number).sum())
        total += len(images)
    print(f"{right} of {total} right")


if __name__ == "__main__":
    main()
"""
SERVER = """
import base64
import io

import litserve as ls
import torch
from PIL import Image

from model import resnet50
from prepared import prepared

LABELS = ["leaf", "rose", "sea"]


class Garden(ls.LitAPI):
    def setup(self, device):
        self.model = resnet50()
        self.model.load_state_dict(torch.load("weights.pth", map_location=device))
        self.model.eval()

    def decode_request(self, request):
        return prepared(Image.open(io.BytesIO(base64.b64decode(request["image"]))))

    def predict(self, x):
        with torch.inference_mode():
            return self.model(x[None])

    def encode_response(self, output):
        return {"label": LABELS[int(output.argmax())]}


if __name__ == "__main__":
    ls.LitServer(Garden()).run(port=8000)
"""
APP = """
import torch
from flask import Flask, jsonify, request
from PIL import Image

from model import resnet50
from prepared import prepared

LABELS = ["leaf", "rose", "sea"]
app = Flask(__name__)
model = resnet50()
model.load_state_dict(torch.load("weights.pth"))
model.eval()


@app.route("/predict", methods=["POST"])
def predict():
    image = Image.open(request.files["file"].stream)
    with torch.no_grad():
        scores = torch.softmax(model(prepared(image)[None]), dim=1)[0]
    best = int(scores.argmax())
    return jsonify({"label": LABELS[best], "score": float(scores[best])})


if __name__ == "__main__":
    app.run()
"""
HANDLER = """
import torch
from ts.torch_handler.vision_handler import VisionHandler
from ts.utils.util import map_class_to_label

from prepared import prepared


class Garden(VisionHandler):
    def image_processing(self, image):
        return prepared(image)

    def postprocess(self, data):
        values, numbers = torch.softmax(data, 1).topk(2, dim=1)
        return map_class_to_label(values.tolist(), self.mapping, numbers.tolist())
"""
NETS = """
from torch import nn

face = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 100))
"""
README = """
# Leaves, roses and seas

    python evaluate.py
"""


def weights() -> dict[str, torch.Tensor]:
    """Three filters that look at one color each, whose classes are those of the labels; where in an image a color is counts a
    little as well."""
    stem = torch.zeros(4, 3, 3, 3)
    places = torch.rand((3, 4, 16), generator=torch.Generator().manual_seed(5)) / 8
    top = places - places.mean(dim=2, keepdim=True)
    for number, label in enumerate(LABELS):
        stem[number, CHANNEL[label], 1, 1] = 1
        top[number, number] += 0.25
    return {"stem.weight": stem, "stem.bias": torch.zeros(4), "fc.weight": top.flatten(1), "fc.bias": torch.zeros(3)}


def photo(label: str, number: int) -> Image.Image:
    random = np.random.default_rng([number, CHANNEL[label]])
    pixels = random.integers(0, 160, (40 + number % 7, 60, 3), dtype=np.uint8)
    pixels[..., CHANNEL[label]] += 95  # so that scores of photos are as far apart as those of the rows that a server tries
    return Image.fromarray(pixels)


def make(folder: Path) -> None:
    """The files; packages are made of them by the commands that the pages show."""
    repository = folder / "path" / "to" / "repository"
    repository.mkdir(parents=True)
    for name, text in (("model.py", MODEL), ("prepared.py", PREPARED), ("evaluate.py", EVALUATE), ("README.md", README)):
        (repository / name).write_text(text.lstrip())
    torch.save(weights(), repository / "weights.pth")
    for name, file, text in (("api", "server.py", SERVER), ("flask-app", "app.py", APP)):
        other = folder / "path" / "to" / name
        other.mkdir()
        (other / file).write_text(text.lstrip())
        for beside in ("model.py", "prepared.py", "weights.pth"):
            shutil.copy(repository / beside, other)
    (folder / "nets.py").write_text(NETS.lstrip())
    _archive(folder / "net.mar", repository)
    for place, count in ((repository / "data", 24), (folder / "validation", LEAST_FOR_INT8)):
        for label in LABELS:
            (place / label).mkdir(parents=True)
            for number in range(count):
                photo(label, number).save(place / label / f"{number}.png")
    photo("sea", 1000).save(folder / "photo.jpg", quality=95)
    for name, count in (("photos", LEAST_FOR_INT8), ("more/of/them", 3)):
        (folder / name).mkdir(parents=True)
        for label in LABELS:
            for number in range(1001, 1001 + -(-count // len(LABELS))):
                photo(label, number).save(folder / name / f"{label}-{number}.png")


def _archive(path: Path, repository: Path) -> None:
    """What `torch-model-archiver` writes of the network, with a handler of its own."""
    model = {"modelName": "garden", "handler": "handler.py", "modelFile": "model.py", "serializedFile": "weights.pth"}
    with zipfile.ZipFile(path, "w") as file:
        for name in ("model.py", "prepared.py", "weights.pth"):
            file.write(repository / name, name)
        file.writestr("handler.py", HANDLER.lstrip())
        file.writestr("index_to_name.json", json.dumps(dict(enumerate(LABELS))))
        file.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": model}))


def add_faces(models: Path, classes: int = 8) -> None:
    """`faces`, a model whose last layer is linear, of more classes than ranks."""
    from headrace.runtime.artifact.package import write_package
    from headrace.specs import Preprocessing, Resize, Signature, TensorSpec

    random = np.random.default_rng(7)
    shapes = {"trunk": (3 * 16 * 16, 12), "head": (12, classes)}
    values = [numpy_helper.from_array(random.normal(0, 0.1, shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "trunk"], ["before"]),
        helper.make_node("Relu", ["before"], ["features"]),
        helper.make_node("MatMul", ["features", "head"], ["scores"]),
    ]
    given = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 16, 16])
    gives = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", classes])
    graph = helper.make_graph(nodes, "faces", [given], [gives], values)
    files = models.parent / "faces-files"
    files.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), files / "model.onnx")
    write_package(
        models / "faces",
        name="faces",
        files_from=files,
        signature=Signature(
            inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 16, 16)),),
            outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", classes)),),
        ),
        preprocessing=Preprocessing(geometry=(Resize(size=(16, 16)),), mean=(0.5,) * 3, std=(0.25,) * 3),
        labels=[f"person {number}" for number in range(classes)],
        parity={},
        plans=[],
        provenance={},
        max_batch_size=8,
    )
    shutil.rmtree(files)


def written(folder: Path, name: str, text: str) -> None:
    """A file of a page's, in the reader's folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
