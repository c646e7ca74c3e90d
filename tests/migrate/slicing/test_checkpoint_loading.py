"""Functions that make a model and load its weights, where the file of weights is absent: what is left, and that it builds."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headrace.migrate.reading.scopes import Module, Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.slicing.checkpoint_loading import reaches_loading, without_loading
from headrace.migrate.survey.survey import survey
from tests.warm_python import WarmPython

BUILDER = Path(__file__).parents[1] / "build_corpus.py"
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))
"""
LOOP = """
def main():
    model = {call}
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            print((model(x).argmax(1) == y).sum())

if __name__ == "__main__":
    main()
"""


def module_of(text: str) -> Module:
    source = parse_source("a.py", textwrap.dedent(text).encode())
    return Repository([source]).modules["a.py"]


def form_of(text: str, name: str) -> str | None:
    module = module_of(text)
    form = without_loading(module, module.definitions[name])
    return ast.unparse(form) if form is not None else None


@pytest.mark.parametrize(
    "body",
    [
        "return Net()",
        "if pretrained:\n        model = Net()\n        model.load_state_dict(load_url(URL))\n    return model",
        "config = yaml.safe_load(path)\n    return Net(config['classes'])",
        "model = torch.load(path)\n    return model",  # the file is the model
    ],
)
def test_nothing_to_leave_out(body: str) -> None:
    assert form_of(f"def make(path, pretrained=False):\n    {body}\n", "make") is None


def test_only_the_loading_is_left_out() -> None:
    form = form_of(
        """
        def make(path, classes, device="cpu"):
            print("loading", path)
            net = Net(classes)
            if device == "cuda":
                net = DataParallel(net)
            try:
                saved = torch.load(path)
                net.load_state_dict({k: v for k, v in saved["net"].items()}, strict=False)
                best = saved["accuracy"]
            except KeyError:
                net.load_state_dict(saved)
            for parameter in net.parameters():
                parameter.requires_grad = False
            if classes > 10:
                net.head = Linear(4, classes)
                return net.eval()
            net.eval()
            return net
        """,
        "make",
    )
    assert form == textwrap.dedent(
        """\
        def make(path, classes, device='cpu'):
            net = Net(classes)
            if device == 'cuda':
                net = DataParallel(net)
            if classes > 10:
                net.head = Linear(4, classes)
                return net.eval()
            return net"""
    )


def test_what_the_file_must_say_is_still_read_from_it() -> None:
    form = form_of(
        """
        def make(path):
            saved = torch.load(path)
            net = Net(saved["classes"])
            net.load_state_dict(saved["net"])
            return net
        """,
        "make",
    )
    assert form is not None
    assert "torch.load" in form
    assert "load_state_dict" not in form


def test_arguments_and_globals_are_still_changed() -> None:
    form = form_of(
        """
        def prepare(model, path):
            global ready
            model.fc = Linear(4, 2)
            model.load_state_dict(torch.load(path))
            ready = True
        """,
        "prepare",
    )
    assert form is not None
    assert "model.fc = Linear(4, 2)" in form
    assert "ready = True" in form
    assert "load" not in form


def test_loading_is_seen_through_calls() -> None:
    module = module_of(
        """
        def load(path):
            net = Net()
            net.load_state_dict(torch.load(path))
            return net

        def make(name):
            return load(name + ".pth")

        def bare(name):
            return Net(name)
        """
    )
    assert [reaches_loading(module, module.definitions[name]) for name in ("load", "make", "bare")] == [True, True, False]


LOAD = """
def load(path, classes=7):
    net = Net(classes)
    net.load_state_dict(torch.load(path, map_location="cpu")["net"])
    return net.eval()
"""
SHAPES: dict[str, tuple[dict[str, str], int]] = {
    "imported": (
        {
            "net.py": NET,
            "tools.py": "import torch\nfrom net import Net\n" + LOAD,
            "test.py": "import torch\nfrom tools import load\n" + LOOP.format(call='load("best.pth", 5)'),
        },
        5,
    ),
    "dotted": (
        {
            "net.py": NET,
            "tools.py": "import torch\nfrom net import Net\n" + LOAD,
            "test.py": "import torch\nimport tools\n" + LOOP.format(call='tools.load("best.pth")'),
        },
        7,
    ),
    "through two files": (
        {
            "zoo/net.py": NET,
            "zoo/loading.py": "import torch\nfrom .net import Net\nWIDTH = 6\n" + LOAD.replace("classes=7", "classes=WIDTH"),
            "zoo/__init__.py": "from .loading import load\n\ndef build(name):\n    return load(f'{name}.pth')\n",
            "test.py": "import torch\nfrom zoo import build\n" + LOOP.format(call='build("best")'),
        },
        6,
    ),
    "a method": (
        {
            "net.py": NET,
            "test.py": """
import torch
from net import Net

class Tester:
    def __init__(self, path):
        self.net = self._load(path)

    def _load(self, path):
        net = Net(4)
        net.load_state_dict(torch.load(path))
        return net

    def run(self, loader):
        with torch.no_grad():
            for x, y in loader:
                print((self.net(x).argmax(1) == y).sum())

if __name__ == "__main__":
    Tester("best.pth").run(loader)
""",
        },
        4,
    ),
    "the module itself": (
        {
            "net.py": NET.replace(
                "        self.fc", "        self.load_state_dict(torch.load('backbone.pth'))\n        self.fc"
            ),
            "test.py": "import torch\nfrom net import Net\n" + LOOP.format(call="Net(9)"),
        },
        9,
    ),
}


def test_models_are_built_without_the_file(tmp_path: Path, warm_torch: WarmPython) -> None:
    work: list[dict[str, Any]] = []
    for name, (files, _) in SHAPES.items():
        root = tmp_path / name.replace(" ", "_")
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        resolved = resolve(survey(root))
        assert resolved.fallback_recipe is not None, name
        assert "load_state_dict" not in resolved.fallback_recipe.source
        work.append({"name": name, "recipe": resolved.fallback_recipe.to_json(), "input": [3, 16, 16]})
    done = warm_torch.python([BUILDER], cwd=tmp_path, stdin=json.dumps(work))
    assert done.returncode == 0, done.stderr
    answers = {answer["name"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers == {name: {"name": name, "classes": classes} for name, (_, classes) in SHAPES.items()}
