"""What a `torch.load` reads: weights, a whole model, or data."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey

WEIGHTS = {
    "at once": "model.load_state_dict(torch.load(path))",
    "an entry": "model.load_state_dict(torch.load(path)['net'], strict=False)",
    "by a name": "saved = torch.load(path)\nstate = saved['model']\nmodel.load_state_dict(state)",
    "through a loop": (
        "saved = torch.load(path)\nclean = {}\nfor key, value in saved.items():\n    clean[key[7:]] = value\n"
        "model.load_state_dict(clean)"
    ),
    "through update": "own = model.state_dict()\nown.update(torch.load(path))\nmodel.load_state_dict(own)",
    "by a helper": "saved = torch.load(path)\nload_pretrained(model, saved)",
    "returned": "def read(path):\n    return torch.load(path)\nmodel.load_state_dict(read(path)['net'])",
    "on an object": (
        "class A:\n    def __init__(self):\n        self.saved = torch.load(path)\n    def go(self, model):\n"
        "        model.load_state_dict(self.saved)"
    ),
    "a model": "model = torch.load(path)\nmodel.eval()",
    "a model moved": "net = torch.load(path).to(device)\nfor x in loader:\n    net(x)",
    "a model returned": "def read():\n    return torch.load(path)\nmodel = read().cuda()\nmodel.eval()",
}
DATA = {
    "batches": "for x, y in torch.load(path):\n    model(x)",
    "a data set": "data = TensorDataset(*torch.load(path))\nfor x, y in DataLoader(data):\n    model(x)",
    "a dictionary": "split = torch.load(path)\nimages, labels = split['x'], split['y']\nmodel(images.to(device))",
    "tensors on an object": (
        "class Data(Dataset):\n    def __init__(self, path):\n        self.images = torch.load(path)\n"
        "    def __getitem__(self, i):\n        return self.images[i]\nmodel.load_state_dict(state)"
    ),
    "returned": "def load_split(path):\n    return torch.load(path)\nimages = load_split(path)\nprint(model(images))",
    "statistics": "mean = torch.load(path)\nmodel((x - mean) / 2)",
}


def weights_of(folder: Path, body: str) -> list[bool]:
    (folder / "main.py").write_text("import torch\nmodel = make()\n" + textwrap.dedent(body) + "\n")
    return [site.weights for site in survey(folder).checkpoints]


@pytest.mark.parametrize("shape", DATA)
def test_data_are_no_weights(tmp_path: Path, shape: str) -> None:
    assert weights_of(tmp_path, DATA[shape]) == [False]


@pytest.mark.parametrize("shape", WEIGHTS)
def test_weights_are_found(tmp_path: Path, shape: str) -> None:
    assert weights_of(tmp_path, WEIGHTS[shape]) == [True]


def test_of_both_only_the_weights_are_the_models(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(4, 3)\n    def forward(self, x):\n        return self.fc(x)\n"
        "\ndef load(path):\n    net = Net()\n    net.load_state_dict(torch.load(path))\n    return net\n"
    )
    (tmp_path / "test.py").write_text(
        "import torch\nfrom net import load\n\nmodel = load('best.pt')\nmodel.eval()\n"
        "for x, y in torch.load('val.pt'):\n    print(model(x).argmax(1) == y)\n"
    )
    found = resolve(survey(tmp_path))
    assert [(site.path, site.line) for site in found.checkpoints] == [("net.py", 13)]


def test_scripts_with_functions_of_one_name_are_not_each_others_callers(tmp_path: Path) -> None:
    (tmp_path / "images.py").write_text(
        "import torch\n\ndef read(path):\n    return torch.load(path)\n\nprint(read('x.pt').mean())\n"
    )
    (tmp_path / "main.py").write_text(
        "from torch.hub import load_state_dict_from_url as got\nmodel = make()\n\ndef read(path):\n    return got(path)\n"
        "\nmodel.load_state_dict(read('a.pt'))\n"
    )
    assert {site.path: site.weights for site in survey(tmp_path).checkpoints} == {"images.py": False, "main.py": True}
