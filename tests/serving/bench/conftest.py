"""A repository whose model tells red, green and blue images apart, packaged as `migrate` packages it, without running that."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace.migrate.worker.packaging import Order, package_model
from headrace.runtime.base.config import GraphConfig
from headrace.serving.bench import run
from headrace.specs import Preprocessing, Resize

COLORS = ("blue", "green", "red")  # in the order of an ImageFolder; the labels are in the order of the channels
LABELS = ("red", "green", "blue")
SIDE = 24
SOURCE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 3, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(3)
    def forward(self, x):
        return self.norm(self.stem(x)).mean((2, 3))
model = Net()
with torch.no_grad():
    model.stem.weight.copy_(4 * torch.eye(3)[:, :, None, None])
"""


@pytest.fixture(autouse=True)
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests beside this one keep the cores busy, for which every measurement would be made four times."""
    monkeypatch.setattr(run, "TRIES", 1)


@dataclass(frozen=True)
class Colors:
    """`models` holds the model "colors"; `recipe` builds it from the repository `root`, which has 24 labeled images."""

    root: Path
    models: Path
    recipe: dict


@pytest.fixture(scope="session")
def colors(once) -> Colors:
    return once("colors", _colors)


def _colors(folder: Path) -> Colors:
    root = folder / "repository"
    for number, color in enumerate(COLORS):
        for shade in range(8):
            pixels = np.full((30, 40, 3), 20 + shade, np.uint8)
            pixels[..., LABELS.index(color)] = 200 + 5 * shade
            path = root / "data" / "test" / color / f"{number}{shade}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    space = {}
    exec(SOURCE, space)
    models = folder / "models"
    models.mkdir()
    order = Order(
        name="colors",
        out=models / "colors",
        row=(3, SIDE, SIDE),
        config=GraphConfig(backend="onnxruntime", buckets=(1, 4), max_tuning_seconds=1),
        labels=(LABELS,),
        preprocessing=Preprocessing(geometry=(Resize(size=(SIDE, SIDE)),), mean=(0.5,) * 3, std=(0.25,) * 3),
        provenance={},
    )
    package_model(space["model"].eval(), order, lambda fraction, text: None)
    recipe = {"root": str(root), "directory": ".", "script": "evaluate.py", "argv": [], "source": SOURCE, "expression": "model"}
    return Colors(root=root, models=models, recipe=recipe)
