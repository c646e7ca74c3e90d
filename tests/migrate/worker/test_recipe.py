"""Every recipe is executed in a process of its own, as it is in earnest."""

import json
import os

import pytest
import torch

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = nn.Linear(3, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.fc(x))

def fails():
    x = 1
    raise KeyError("layer3")
"""

# Imports torch once, then runs every recipe in a fork of its own.
RUNNER = """
import json, os, sys
import torch
from headrace.errors import SandboxError
from headrace.migrate.worker.recipe import Recipe, build_model, locate

def run(recipe):
    os.environ.update(recipe.pop("environment"))
    try:
        model = build_model(Recipe.from_json(recipe))
    except SandboxError as error:
        where = locate(error.__cause__, recipe["root"]) if error.__cause__ else None
        return {"error": str(error), "where": where, "output": error.output}
    return {"class": type(model).__name__, "training": model.training, "fc": model.fc.weight.tolist(),
            "argv": sys.argv, "main": hasattr(sys.modules["__main__"], "RUNNING")}

for line in sys.stdin:
    if os.fork() == 0:
        print(json.dumps(run(json.loads(line))), flush=True)
        os._exit(0)
    os.wait()
    print("END", flush=True)
"""


@pytest.fixture(scope="module")
def runner(warm_torch):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with warm_torch.talk(["-c", RUNNER], env=environment) as streams:
        yield streams


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repo"
    (root / "tools").mkdir(parents=True)
    (root / "tools/model.py").write_text(MODEL)
    (root / "tools/evaluate.py").write_text("# the script\n")
    return root


@pytest.fixture
def build(repository, runner):
    def run(source, model="model", trusted=False, **changes):
        recipe = {
            "root": str(repository),
            "directory": "tools",
            "script": "evaluate.py",
            "argv": ["--width", "7"],
            "source": source,
            "expression": model,
            "environment": {} if trusted else {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"},
            **changes,
        }
        said, answers = runner
        said.write(json.dumps(recipe) + "\n")
        said.flush()
        lines = list(iter(answers.readline, "END\n"))
        return {**json.loads(lines[-1]), "printed": [line.strip() for line in lines[:-1]]}

    return run


def test_runs_as_the_script_would(build):
    source = """
import argparse, os, sys
from model import Net
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
args = parser.parse_args()
print("building", __name__, os.path.basename(__file__), os.path.basename(os.getcwd()), os.path.basename(sys.path[0]))
model = Net(args.width)
if __name__ == "__main__":
    RUNNING = model = None
"""
    answer = build(source)
    assert answer["class"] == "Net"
    assert not answer["training"]
    assert len(answer["fc"]) == 7
    assert answer["argv"] == ["evaluate.py", "--width", "7"]
    assert answer["printed"] == ["building __headrace__ evaluate.py tools tools"]
    assert not answer["main"]


def test_the_script_may_lie_below_the_working_directory(build):
    answer = build("from model import Net\nmodel = Net(5)", directory=".", script="tools/evaluate.py")
    assert len(answer["fc"]) == 5
    assert answer["argv"][0] == "tools/evaluate.py"


def test_any_expression_names_the_model(build):
    assert len(build("from model import Net\nstate = {'nets': [Net(2)]}", model="state['nets'][0]")["fc"]) == 2


def test_classes_of_the_slice_itself_work_with_dataclasses(build):
    source = """
from __future__ import annotations
import dataclasses
from typing import ClassVar
from model import Net
@dataclasses.dataclass
class Config:
    width: int = 6
    kinds: ClassVar[list] = []
model = Net(Config().width)
"""
    assert len(build(source)["fc"]) == 6


@pytest.mark.parametrize(
    "wrap",
    [
        "torch.nn.DataParallel(net)",
        "torch.nn.DataParallel(torch.nn.DataParallel(net))",
        "torch.compile(net)",
        "Ema(net)",
        "Holder(net)",
    ],
)
def test_wrappers_come_off(build, wrap):
    source = f"""
import torch
from model import Net
class Ema(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.module = model
class Holder:
    def __init__(self, model):
        self.ema = model
net = Net(3)
model = {wrap}
"""
    assert build(source)["class"] == "Net"


def test_a_module_with_a_part_called_module_stays_whole(build):
    source = """
import torch
from model import Net
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.module = Net(3)
        self.fc = self.module.fc
    def forward(self, x):
        return self.module(x)
model = Outer()
"""
    assert build(source)["class"] == "Outer"


def saved_on_cuda(path, state):
    """What torch.save writes on a GPU, as far as loading goes: storages tagged cuda:0."""
    import torch.serialization as serialization

    original = serialization.location_tag
    serialization.location_tag = lambda storage: "cuda:0"
    try:
        torch.save(state, path)
    finally:
        serialization.location_tag = original


def test_checkpoints_saved_on_a_gpu_load_without_map_location(build, repository):
    saved_on_cuda(repository / "tools/ckpt.pth", {"net": {"fc.weight": torch.ones(4, 3), "fc.bias": torch.zeros(4)}})
    asked = set()  # torch.load alone would tell less: whoever built a model in this process has taught it to stay on the CPU
    torch.load(repository / "tools/ckpt.pth", map_location=lambda storage, location: asked.add(location) or storage)
    assert asked == {"cuda:0"}
    source = "import torch\nfrom model import Net\nmodel = Net()\nmodel.load_state_dict(torch.load('ckpt.pth')['net'])\n"
    assert build(source)["fc"] == [[1.0] * 3] * 4


def test_a_pickled_model_needs_trust(build, repository, warm_python):
    code = MODEL + "\nNet.__module__ = '__main__'\ntorch.save(Net(3), 'whole.pth')"
    saved = warm_python(["-c", code], cwd=repository / "tools")
    assert saved.returncode == 0, saved.stderr
    source = "import torch\nfrom model import Net\n\nmodel = torch.load('whole.pth', weights_only=False)\n"
    refused = build(source)
    assert refused["where"] == "tools/evaluate.py:4"
    assert refused["error"].startswith("tools/evaluate.py:4: the checkpoint holds more than tensors")
    assert "--trust-checkpoint" in refused["error"]
    assert build(source, trusted=True)["class"] == "Net"


@pytest.mark.parametrize(
    ("source", "where", "text"),
    [
        ("import model\n\nmodel.fails()\n", "tools/model.py:16", "KeyError: 'layer3'"),
        ("\n\nfrom model import Gone\n", "tools/evaluate.py:3", "cannot import name 'Gone'"),
        ("import no_such_package_at_all\n", "tools/evaluate.py:1", "No module named 'no_such_package_at_all'"),
        ("x = 1\nmodel = (\n", "tools/evaluate.py:2", "never closed"),
        ("import torch\nmodel = torch.nn.Linear(3, 2).cuda()\n", "tools/evaluate.py:2", "no usable GPU"),
        ("import sys\nsys.exit(3)\n", "tools/evaluate.py:2", "exit status 3"),
        ("import argparse\nargparse.ArgumentParser().parse_args()\n", "tools/evaluate.py:2", "exit status 2"),
        ("import torch\n\ntorch.zeros(2) @ torch.zeros(3)\n", "tools/evaluate.py:3", "RuntimeError"),
        ("raise BaseException('odd')\n", "tools/evaluate.py:1", "BaseException: odd"),
    ],
)
def test_errors_stand_at_the_users_own_line(build, source, where, text):
    answer = build(source)
    assert answer["where"] == where
    assert answer["error"].startswith(f"{where}: ")
    assert text in answer["error"]
    assert "Traceback" in answer["output"]


def test_a_broken_model_expression_or_value_is_named(build):
    assert "NameError" in build("x = 1", model="modle")["error"]
    assert "'x' in evaluate.py is a int, not a torch.nn.Module" in build("x = 1", model="x")["error"]


@pytest.mark.parametrize("changes", [{"directory": "../.."}, {"script": "../../evaluate.py"}, {"directory": "absent"}])
def test_a_recipe_stays_in_its_repository(build, changes):
    error = build("model = None", **changes)["error"]
    assert "leads out of its repository" in error or "does not exist" in error


DATA_SETS = """
import os


class Folder:
    def __init__(self, root):
        self.classes = sorted(os.listdir(root))


class Images(Folder):
    def __init__(self, root):
        super().__init__(root)
        self.count = len(self.classes)
"""
WITH_DATA = """
from torchvision.datasets import Images
from model import Net

def build_dataset(root):
    return Images(root), 9

data, classes = build_dataset("nowhere")
model = Net({})
"""


def test_a_data_set_that_is_absent_stops_only_what_needs_it(repository, build):
    package = repository / "tools" / "torchvision" / "datasets"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text(DATA_SETS)
    assert len(build(WITH_DATA.format("classes"))["fc"]) == 9
    for needed in ("len(data.classes)", "data.count"):
        failed = build(WITH_DATA.format(needed))
        assert "nowhere" in failed["error"]
        assert "FileNotFoundError" in failed["error"]
        assert failed["where"] == "tools/torchvision/datasets/__init__.py:7"
    (repository / "tools" / "nowhere").mkdir()
    assert len(build(WITH_DATA.format("data.count + 2"))["fc"]) == 2


def test_other_absent_files_are_errors(build):
    assert "gone.pt" in build("import torch\nfrom model import Net\nmodel = Net(2)\ntorch.load('gone.pt')\n")["error"]
