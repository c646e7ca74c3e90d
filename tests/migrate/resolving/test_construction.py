"""Ways in which repositories make their models: each is resolved, and the recipe is run and captured in one forked process."""

import json
from pathlib import Path

import pytest

from headrace.migrate.resolving.ranking import configurations
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey
from tests.migrate.repositories import written

PROVE = Path(__file__).parents[2] / "open_cases" / "prove.py"
NET = """
import torch
import torch.nn as nn


class SmallNet(nn.Module):
    def __init__(self, num_classes=10, width=8):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).relu().mean((2, 3)))
"""
EVALUATE = """
import torch


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            outputs = model(images)
            correct += (outputs.argmax(1) == labels).sum().item()
    return correct
"""
CASES = {
    "registry filled by a decorator": (
        {
            "models/__init__.py": "from . import small\n",
            "models/registry.py": """
MODELS = {}


def register(name):
    def wrap(function):
        MODELS[name] = function
        return function
    return wrap


def build(name, **options):
    return MODELS[name](**options)
""",
            "models/small.py": NET
            + """

from .registry import register


@register("wide")
def wide(num_classes=10):
    return SmallNet(num_classes, width=16)
""",
            "eval.py": EVALUATE
            + """
import argparse
from models.registry import build
import models

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="wide")
args = parser.parse_args()
print(evaluate(build(args.model, num_classes=4), []))
""",
        },
        4,
    ),
    "globals by name after a star import": (
        {
            "net.py": NET + "\n\ndef wide():\n    return SmallNet(3, width=16)\n",
            "eval.py": EVALUATE
            + """
import argparse
from net import *

parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="wide")
args = parser.parse_args()
print(evaluate(globals()[args.arch](), []))
""",
        },
        3,
    ),
    "eval of a name from a list of imports": (
        {
            "net.py": NET
            + "\n\ndef wide():\n    return SmallNet(3, width=16)\n\n\ndef tiny():\n    return SmallNet(3, width=2)\n",
            "eval.py": EVALUATE
            + """
import argparse
from net import tiny, wide

parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="tiny")
args = parser.parse_args()
print(evaluate(eval(args.arch)(), []))
""",
        },
        3,
    ),
    "module by name": (
        {
            "nets/__init__.py": "",
            "nets/small.py": NET + "\n\ndef create(num_classes):\n    return SmallNet(num_classes)\n",
            "eval.py": EVALUATE
            + """
import argparse
import importlib

parser = argparse.ArgumentParser()
parser.add_argument("--net", default="small")
parser.add_argument("--num-classes", type=int, default=7)
args = parser.parse_args()
model = importlib.import_module(f"nets.{args.net}").create(args.num_classes)
print(evaluate(model, []))
""",
        },
        7,
    ),
    "partials set on the module": (
        {
            "nets.py": NET
            + """
import sys
from functools import partial

for width in (4, 8):
    setattr(sys.modules[__name__], f"small_{width}", partial(SmallNet, width=width))
""",
            "eval.py": EVALUATE
            + """
import argparse
import nets

parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="small_8")
args = parser.parse_args()
print(evaluate(getattr(nets, args.arch)(num_classes=5), []))
""",
        },
        5,
    ),
    "a class of another file that makes loader and model": (
        {
            "net.py": NET,
            "tester.py": EVALUATE
            + """
from torch.utils.data import DataLoader
from pictures import Folder


class Tester:
    def __init__(self, args):
        self.args = args
        self.model = self.build()
        self.loader = DataLoader(Folder(args.data))

    def build(self):
        from net import SmallNet
        return SmallNet(self.args.classes)

    def load(self, path):
        self.model.load_state_dict(torch.load(path)["model"])

    def run(self):
        self.model.eval()
        with torch.no_grad():
            for images, labels in self.loader:
                output = self.model(images)
        return output
""",
            "pictures.py": "raise RuntimeError('data sets are not needed to build a model')\n",
            "eval.py": """
import argparse
from tester import Tester

parser = argparse.ArgumentParser()
parser.add_argument("--classes", type=int, default=9)
parser.add_argument("--data", default="data")
args = parser.parse_args()
tester = Tester(args)
tester.load("absent.pth")
print(tester.run())
""",
        },
        9,
    ),
    "fire with the checkpoint among the arguments": (
        {
            "net.py": NET,
            "eval.py": EVALUATE
            + """
import fire
from net import SmallNet


def test(weights="absent.pth", classes=4):
    model = SmallNet(num_classes=classes)
    state = torch.load(weights, map_location="cpu")
    state = state.get("state_dict", state)
    model.load_state_dict(state)
    print(evaluate(model, []))


if __name__ == "__main__":
    fire.Fire(test)
""",
        },
        4,
    ),
    "what only a launcher sets": (
        {
            "net.py": NET,
            "settings.py": "import os\nRANK = int(os.environ['LOCAL_RANK'])\n",
            "eval.py": EVALUATE
            + """
import settings
from net import SmallNet

model = SmallNet(6 + settings.RANK)
print(evaluate(model, []))
""",
        },
        6,
    ),
    "downloaded weights by default": (
        {
            "net.py": NET
            + """
from urllib.error import URLError


def small(num_classes=8, pretrained="imagenet"):
    model = SmallNet(num_classes)
    if pretrained is not None:
        raise URLError("no network here")
    return model
""",
            "eval.py": EVALUATE + "\nfrom net import small\n\nmodel = small()\nprint(evaluate(model, []))\n",
        },
        8,
    ),
}


@pytest.fixture(scope="module")
def answers(once, warm_python):
    """Every case's answer from one run of the prover."""
    return once("construction-answers", lambda folder: _answers(folder, warm_python))


def _answers(folder, warm_python):
    jobs = []
    for number, (name, (files, _)) in enumerate(CASES.items()):
        resolved = resolve(survey(written(folder / str(number), files)))
        recipes = [item.to_json() for item in (resolved.recipe, resolved.fallback_recipe) if item is not None]
        jobs.append({"name": name, "recipes": recipes, "rows": [[3, 16, 16]]})
    out = folder / "answers.jsonl"
    (folder / "request.json").write_text(json.dumps({"jobs": jobs, "seconds": 120, "out": str(out)}))
    done = warm_python([PROVE, folder / "request.json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return {answer["name"]: answer for answer in map(json.loads, out.read_text().splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_model_is_built_and_captured(name, answers):
    assert answers[name]["captured"], answers[name]["why"]
    assert answers[name]["classes"] == CASES[name][1]
    assert answers[name]["batches"] == [1, 2, 5]


CONFIGURED = {
    "net.py": NET,
    "eval.py": EVALUATE
    + """
import argparse
import yaml
from net import SmallNet

parser = argparse.ArgumentParser()
parser.add_argument("--cfg", required=True)
args = parser.parse_args()
with open(args.cfg) as file:
    settings = yaml.safe_load(file)
model = SmallNet(settings["classes"])
print(evaluate(model, []))
""",
}


def test_the_only_configuration_file_is_taken(tmp_path):
    root = written(tmp_path, {**CONFIGURED, "configs/small.yaml": "classes: 3\n", ".github/workflows/ci.yml": "on: push\n"})
    assert list(resolve(survey(root)).recipe.argv) == ["--cfg", "configs/small.yaml"]


def test_of_several_configuration_files_that_of_the_readme_is_taken_else_the_first(tmp_path):
    files = {"configs/net10.yaml": "classes: 3\n", "configs/net9.yaml": "classes: 4\n"}
    root = written(tmp_path, {**CONFIGURED, **files, "configs/b.yaml": "classes: 5\n"})
    found = resolve(survey(root))
    assert list(found.recipe.argv) == ["--cfg", "configs/b.yaml"]
    [remark] = [item.message for item in found.findings if item.code == "PS011"]
    assert remark == (
        "--cfg configs/b.yaml was taken, the first of 3: configs/net9.yaml, configs/net10.yaml; "
        '--entry "eval.py --cfg configs/net9.yaml" takes another'
    )
    (root / "README.md").write_text("The weights of `configs/net10.yaml` are better than those of configs/net9.yaml.\n")
    assert list(resolve(survey(root)).recipe.argv) == ["--cfg", "configs/net10.yaml"]
    (root / "README.md").write_text("```sh\npython eval.py --cfg configs/net9.yaml\n```\n")
    found = resolve(survey(root))
    assert list(found.recipe.argv) == ["--cfg", "configs/net9.yaml"]
    assert [item.message for item in found.findings if item.code == "PS011"] == [
        'told what README.md:2 tells: --cfg configs/net9.yaml; --entry "eval.py ..." tells something else'
    ]
    chosen = resolve(survey(root), entry="eval.py --cfg configs/b.yaml")
    assert list(chosen.recipe.argv) == ["--cfg", "configs/b.yaml"]


def test_each_option_gets_the_configuration_of_its_name(tmp_path):
    several = CONFIGURED["eval.py"].replace(
        'parser.add_argument("--cfg", required=True)',
        'parser.add_argument("--cfg", required=True, help="settings of the training")\n'
        'parser.add_argument("--data-config", required=True)\nparser.add_argument("--model-config", required=True)',
    )
    files = {f"configs/{name}.yaml": "classes: 3\n" for name in ("config", "data", "model", "train")}
    root = written(tmp_path, {**CONFIGURED, "eval.py": several, **files, "README.md": "See configs/config.yaml\n"})

    def first_of_each():
        found = survey(root)
        return [configurations(found, found.scripts[0], option)[0] for option in found.scripts[0].options]

    assert first_of_each() == ["configs/config.yaml", "configs/data.yaml", "configs/model.yaml"]
    (root / "README.md").unlink()
    assert first_of_each()[0] == "configs/train.yaml"


def test_without_yaml_a_folder_of_configurations_may_hold_python(tmp_path):
    files = {"configs/__init__.py": "", "configs/small/a.py": "classes = 3\n", "experiments/run_all.py": "print(1)\n"}
    root = written(tmp_path, {**CONFIGURED, **files})
    assert list(resolve(survey(root)).recipe.argv) == ["--cfg", "configs/small/a.py"]


def test_of_several_projects_configuration_files_the_nearest_is_taken_and_source_is_none_beside_ini(tmp_path):
    files = {
        "a/config/x.cfg": "[m]\n",
        "b/config/x.cfg": "[m]\n",
        "b/config/y.ini": "[m]\n",
        "a/lib/config/Params.py": "x = 1\n",
    }
    root = written(tmp_path, {f"b/tools/{name}": text for name, text in CONFIGURED.items()} | files)
    found = resolve(survey(root)).recipe
    assert (list(found.argv), found.directory) == (["--cfg", "../config/x.cfg"], "b/tools")


def test_a_factory_is_imported_as_its_repository_imports_it(tmp_path):
    files = {
        "nets/small.py": NET + "\n\ndef small():\n    return SmallNet()\n",
        "nets/other.py": NET.replace("SmallNet", "OtherNet") + "\nfrom nets.small import SmallNet\n",
        "table.py": "from nets.small import small\nfrom nets.other import OtherNet\n",
    }
    recipe = resolve(survey(written(tmp_path, files)), model="small").recipe
    assert recipe.directory == "."
    assert "from nets.small import small" in recipe.source


def test_of_two_factories_of_one_name_the_imported_one_is_meant(tmp_path):
    files = {
        "convert/load.py": NET + "\n\ndef small():\n    return SmallNet(3)\n\n\ndef tiny():\n    return SmallNet(2)\n",
        "zoo/__init__.py": "from .nets import small\n",
        "zoo/nets.py": NET + "\n\ndef small():\n    return SmallNet(5)\n",
    }
    assert resolve(survey(written(tmp_path, files)), model="small").factory.startswith("zoo/nets.py")


CHOOSING = (
    EVALUATE
    + """
import argparse
from net import SmallNet


def get_network(args):
    if args.net == "small":
        net = SmallNet(3)
    elif args.net in ("wide", "wider"):
        net = SmallNet(3, width=16)
    else:
        raise SystemExit("unknown network")
    return net


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-net", type=str, required=True)
    args = parser.parse_args()
    print(evaluate(get_network(args), []))
"""
)


def test_of_the_names_that_a_function_chooses_by_the_documented_is_taken_else_the_first(tmp_path):
    root = written(tmp_path, {"net.py": NET, "test.py": CHOOSING})
    surveyed = survey(root)
    assert [factory.name for factory in surveyed.factories] == ["SmallNet"]
    found = resolve(surveyed)
    assert list(found.recipe.argv) == ["-net", "small"]
    assert [item.message for item in found.findings if item.code == "PS011"] == [
        '-net small was taken, the first of 3: wide, wider; --entry "test.py -net wide" takes another'
    ]
    (root / "README.md").write_text("    $ python train.py -net wide -gpu\n")  # of another script
    assert list(resolve(survey(root)).recipe.argv) == ["-net", "wide"]
    assert list(resolve(surveyed, model="wider").recipe.argv) == ["-net", "wider"]


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("timm.create_model('pvt_v2_b0', num_classes=3)", "pvt_v2_b0"),
        ("timm.create_model(model_name='hf_hub:who/tiny', global_pool='avg')", "tiny"),
        ("torch.hub.load('pytorch/vision', 'resnet18')", "resnet18"),
        ("AutoModelForImageClassification.from_pretrained('google/vit-base')", "vit-base"),
        ("r18(num_classes=3)", "resnet18"),
        ("timm.create_model(os.environ['MODEL'], global_pool='avg')", "cars"),
        ("r18(num_classes=3) if os.path.exists('18.pth') else timm.create_model('resnet50')", "cars"),
    ],
)
def test_a_published_model_is_called_as_it_is_asked_for(tmp_path, made, name):
    imports = (
        "import os, timm, torch\nfrom torchvision.models import resnet18 as r18\n"
        "from transformers import AutoModelForImageClassification\n"
    )
    root = written(tmp_path / "cars", {"eval.py": f"{imports}{EVALUATE}\nmodel = {made}\nprint(evaluate(model, []))\n"})
    assert resolve(survey(root)).name == name


@pytest.mark.parametrize(
    ("files", "directory", "first"),
    [
        (
            {"deep-nets/nets/small.py": NET, "deep-nets/nets/wide.py": "from .small import SmallNet\nNets = [SmallNet]\n"},
            "deep-nets",
            "from nets.small import SmallNet",
        ),
        ({"2-nets.py": NET}, ".", "from importlib import import_module"),
    ],
)
def test_a_factory_is_imported_whose_folder_or_file_has_no_name_for_an_import(tmp_path, warm_python, files, directory, first):
    recipe = resolve(survey(written(tmp_path, files))).recipe
    assert (recipe.directory, recipe.source.splitlines()[0]) == (directory, first)
    made = warm_python(["-c", f"{recipe.source}\nprint(type({recipe.expression}).__name__)"], cwd=tmp_path / directory)
    assert made.stdout == "SmallNet\n", made.stderr


HELD = """
import torch
import torch.nn as nn
from kinds import Kind


class Scale(nn.Module):
    def __init__(self, c, r=4):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(c, c // r), nn.Linear(c // r, c))

    def forward(self, x):
        return x * self.fc(x.mean((2, 3)))[:, :, None, None]


class Marks(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), Scale(8))
        self.out = nn.Linear(8, len(Kind))

    def forward(self, x):
        return self.out(self.features(x).amax((2, 3)))


class Reader:
    def __init__(self, weights):
        self.net = Marks()
        self.net.load_state_dict(torch.load(weights))
        self.net.eval()

    def __call__(self, image):
        return self.net(image).argmax(1)
"""


def test_what_a_network_is_made_of_is_no_factory_of_the_script(tmp_path):
    files = {"kinds.py": "import enum\nclass Kind(enum.Enum):\n    A = 0\n    B = 1\n", "reader.py": HELD}
    written(tmp_path, files | {"run.py": "from reader import Reader\nread = Reader('marks.pt')\nprint(read(image))\n"})
    resolved = resolve(survey(tmp_path))
    assert (resolved.name, resolved.factory_name) == ("Marks", "Marks")
    assert "features" not in "".join(step.text for step in resolved.chain)


@pytest.mark.parametrize(("value", "name"), [("net.pt", "SmallNet"), ("stored/small", "small"), ("wide", "wide")])
def test_a_model_is_not_called_as_the_file_or_the_folder_that_holds_it(tmp_path, value, name):
    script = (
        "import argparse\nimport torch\nfrom net import SmallNet\nfrom evaluate import evaluate\n"
        "parser = argparse.ArgumentParser()\n"
        f"parser.add_argument('--model', default={value!r})\nargs = parser.parse_args()\n"
        "net = SmallNet()\nnet.load_state_dict(torch.load(args.model))\nevaluate(net, loader)\n"
    )
    written(tmp_path, {"net.py": NET, "evaluate.py": EVALUATE, "main.py": script, "stored/small/weights.bin": ""})
    assert resolve(survey(tmp_path)).name == name
