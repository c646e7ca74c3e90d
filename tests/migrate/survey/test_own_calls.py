from pathlib import Path

import pytest

from headrace.migrate.survey.survey import project_index, survey

NET = """
import torch
from torch import nn
import torch.nn.functional as F


class Base(nn.Module):
    {method}


class Net(Base):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))

    def forward(self, x):
        return self.head(x)

    def head(self, x):
        return self.layers(x)
"""
STEP = """def validation_step(self, batch):
        images, labels = batch
        return (self(images).argmax(1) == labels).sum()"""
LOOP = """def test_loop(self, loader):
        for images, labels in loader:
            print((self(images).argmax(1) == labels).sum())"""
UNNAMED = """@torch.no_grad()
    def check(net, images):
        return net.forward(images).argmax(1)"""
TRAINING = """def training_step(self, batch):
        images, labels = batch
        return F.cross_entropy(self(images), labels)"""
BACKWARD = """def validate_and_fit(self, loader):
        for images, labels in loader:
            F.cross_entropy(self(images), labels).backward()"""


def sites(root: Path, method: str, **files: str) -> list[tuple[str, str | None, str]]:
    (root / "net.py").write_text(NET.format(method=method))
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return [(site.fact.kind, site.fact.function, site.fact.model) for site in project_index(survey(root)).own]


@pytest.mark.parametrize(
    "method",
    [
        "def features(self, x):\n        return self(x)",
        "def validate(self, model, x):\n        return model(x)",
        "def test(self):\n        return self(1)",
        "def loss_and_predict(self, x, y):\n        return F.cross_entropy(self(x), y)",
        "def __call__(self, x):\n        return x\n\n    def test(self, x):\n        return self(x)",
    ],
)
def test_other_calls_are_none_of_its_own(tmp_path: Path, method: str) -> None:
    assert sites(tmp_path, method) == []


def test_what_forward_calls_is_part_of_the_network(tmp_path: Path) -> None:
    again = "def test(self, x):\n        return self(x) if x.ndim == 1 else x"
    method = f"def forward(self, x):\n        return self.test(x)\n\n    {again}"
    assert sites(tmp_path, method) == []


def test_lightning_has_the_loops_of_its_modules(tmp_path: Path) -> None:
    text = (
        NET.format(method=STEP)
        .replace("nn.Module", "pl.LightningModule")
        .replace("import torch\n", "import pytorch_lightning as pl\n")
    )
    (tmp_path / "net.py").write_text(text + "import torch\n")
    assert project_index(survey(tmp_path)).own == ()


@pytest.mark.parametrize(
    ("method", "kind", "function", "name"),
    [
        (STEP, "predict", "Base.validation_step", "self"),
        (LOOP, "evaluate", "Base.test_loop", "self"),
        (UNNAMED, "predict", "Base.check", "net"),
        (TRAINING, "train", "Base.training_step", "self"),
        (BACKWARD, "train", "Base.validate_and_fit", "self"),
    ],
)
def test_a_network_that_is_trained_and_evaluated_by_its_methods(
    tmp_path: Path, method: str, kind: str, function: str, name: str
) -> None:
    called = function.rpartition(".")[2]
    script = f"from net import Net\nnet = Net()\nfor batch in loader:\n    net.{called}(batch)\n"
    assert sites(tmp_path, method, main=script) == [(kind, function, name)]
    (script,) = survey(tmp_path).scripts
    assert (script.path, script.roles) == ("main.py", (kind,))
    assert [loop.path for loop in script.loops] == ["net.py"]


def test_a_method_that_no_script_calls_says_nothing_of_what_a_script_does(tmp_path: Path) -> None:
    train = "from net import Net\nnet = Net()\nfor x, y in loader:\n    loss_of(net(x), y).backward()\n    optimizer.step()\n"
    assert len(sites(tmp_path, STEP, train=train)) == 1
    (script,) = survey(tmp_path).scripts
    assert (script.path, script.roles) == ("train.py", ("train",))
