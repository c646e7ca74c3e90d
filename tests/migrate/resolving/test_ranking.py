"""Which script is taken of several, and what it is told: as a person would choose who reads the README."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.migrate.reading.facts import Script
from headrace.migrate.resolving.ranking import (
    candidates,
    classifying,
    documented_arguments,
    documented_folder,
    documented_models,
    listed,
    natural,
    other_arguments,
)
from headrace.migrate.survey.survey import survey

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))
"""
START = "from net import Net\nimport argparse, torch\n"
EVALUATE = "net = Net()\nnet.eval()\nfor x, y in loader:\n    print((net(x).argmax(1) == y).sum())\n"
PREDICT = "net = Net()\nnet.eval()\nscores = net(transform(Image.open(path))[None])\nprint(scores.argmax(1))\n"
TRAIN = "net = Net()\nfor x, y in loader:\n    loss_of(net(x), y).backward()\n    optimizer.step()\n"


def order(root: Path, files: dict[str, str], readme: str = "", **more: str) -> list[str]:
    for path, text in {"net.py": NET, **{path: START + text for path, text in files.items()}}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for name, text in {"README.md": readme, **{name.replace("_", "."): text for name, text in more.items()}}.items():
        (root / name).write_text(text)
    return [script.path for script in candidates(survey(root))]


def test_an_evaluation_beats_a_demo_and_what_the_readme_runs_beats_others(tmp_path: Path) -> None:
    files = {"train.py": TRAIN, "demo.py": PREDICT, "eval.py": EVALUATE, "tools/check.py": EVALUATE}
    assert order(tmp_path, files) == ["eval.py", "demo.py", "train.py", "tools/check.py"]
    ranked = order(tmp_path, files, "    python tools/check.py\n    python train.py")
    assert ranked == ["train.py", "tools/check.py", "eval.py", "demo.py"]  # those of the folder where most lie
    assert order(tmp_path, files, "See demo.py.\n")[0] == "demo.py"
    assert order(tmp_path, files, "See mydemo.py and a/demo.py.\n")[0] == "eval.py"
    assert order(tmp_path, files, "See demo.py.\n", run_sh="python train.py\n")[:2] == ["demo.py", "train.py"]


def test_what_the_readme_at_the_top_runs_beats_what_one_in_a_folder_does(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/README.md").write_text("    python compare.py\n")
    files = {"experiments/cifar.py": TRAIN, "old/compare.py": TRAIN + EVALUATE}
    assert order(tmp_path, files, "    python -m experiments.cifar\n") == ["experiments/cifar.py", "old/compare.py"]


def test_what_takes_gradients_of_a_prediction_comes_after_what_trains_and_evaluates(tmp_path: Path) -> None:
    """As a transfer of style, which changes an image by what a network makes of it."""
    style = "net = Net().eval()\nfor step in range(2000):\n    total(net(image)).backward()\n    move(image)\n"
    files = {"style.py": style, "demo.py": PREDICT, "train.py": TRAIN + EVALUATE}
    assert order(tmp_path, files) == ["demo.py", "train.py", "style.py"]


def test_among_equals_plain_names_then_the_first_mentioned_then_the_natural_order(tmp_path: Path) -> None:
    files = dict.fromkeys(["train_10.py", "train_9.py", "bn_train.py", "train.py", "xy.py"], TRAIN)
    assert order(tmp_path, files) == ["train.py", "bn_train.py", "train_9.py", "train_10.py", "xy.py"]
    text = "    python xy.py\n    python train_10.py\n    python train.py\n"
    assert order(tmp_path, files, text) == ["train.py", "xy.py", "train_10.py", "bn_train.py", "train_9.py"]
    assert sorted(["10_b", "2_c", "2_a", "a"], key=natural) == ["2_a", "2_c", "10_b", "a"]


def test_what_leads_to_no_library_with_models_comes_last(tmp_path: Path) -> None:
    """The dashboard that the README starts asks a server; the evaluation beside it has the model."""
    client = "import requests\nfrom shown import page\nscores = requests.post(url, files=files).json()\npage(predict(scores))\n"
    files = {"tools/eval.py": "from lib.nets import Net\n" + EVALUATE, "lib/nets.py": "from net import *\n"}
    readme = "    python app.py\n    python by_name.py\n"
    for path, text in {"app.py": client, "shown.py": "def page(x):\n    print(x)\n"}.items():
        (tmp_path / path).write_text(text)
    by_name = "import importlib\nimportlib.import_module('net').Net()\n"
    (tmp_path / "by_name.py").write_text(by_name)
    found = order(tmp_path, files, readme)
    assert found == ["tools/eval.py", "by_name.py", "app.py"]


def test_of_a_course_that_begins_with_points_the_script_for_images_comes_first(tmp_path: Path) -> None:
    points = NET.replace("nn.Conv2d(3, 4, 3)", "nn.Linear(2, 4)")
    files = {"01_points/models.py": points, "01_points/train.py": "from models import Net\nimport helper\n" + EVALUATE}
    files |= {"02_images/models.py": NET, "02_images/train.py": "from models import Net\nimport helper\n" + EVALUATE}
    files |= {"01_points/helper.py": "import torchvision\n", "02_images/helper.py": "import torchvision\n"}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert [script.path for script in candidates(survey(tmp_path))] == ["02_images/train.py", "01_points/train.py"]
    (tmp_path / "README.md").write_text("    python 01_points/train.py\n")
    assert candidates(survey(tmp_path))[0].path == "01_points/train.py"


def test_what_leads_to_images_their_set_and_a_loss_of_classes_classifies(tmp_path: Path) -> None:
    parts = {"loss.py": "from torch.nn import CrossEntropyLoss\n", "sets.py": "from torchvision.datasets import ImageFolder\n"}
    files = {"all.py": "import loss, sets\n", "points.py": "import loss\n", "drawn.py": "import sets\n"}
    for path, text in {**parts, **files}.items():
        (tmp_path / path).write_text(text)
    assert classifying(survey(tmp_path)) == {"all.py"}


def test_scripts_of_a_submodule_come_last(tmp_path: Path) -> None:
    files = {"run.py": TRAIN, "third_party/lib/eval.py": EVALUATE, "third_party/own.py": TRAIN}
    readme = "    python third_party/lib/eval.py\n"
    assert order(tmp_path, files, readme)[0] == "third_party/lib/eval.py"
    (tmp_path / ".gitmodules").write_text('[submodule "lib"]\n\tpath = third_party/lib\n\turl = https://example.org/lib\n')
    assert order(tmp_path, files, readme) == ["run.py", "third_party/own.py", "third_party/lib/eval.py"]


def test_tests_and_files_that_are_there_to_be_imported_come_last(tmp_path: Path) -> None:
    files = {"test_net.py": EVALUATE, "train.py": TRAIN, "tests/check.py": EVALUATE}
    assert order(tmp_path, files) == ["train.py", "test_net.py", "tests/check.py"]
    assert order(tmp_path, files, "    $ python test_net.py")[0] == "test_net.py"


def test_what_a_remote_document_runs_without_a_models_call_comes_after_what_calls_one(tmp_path: Path) -> None:
    files = {"train.py": TRAIN, "lab/inference_simulator.py": "print(torch.load('best.pth').keys())\n"}
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/GUIDE.md").write_text("    python inference_simulator.py\n")
    assert order(tmp_path, files) == ["train.py", "lab/inference_simulator.py"]
    readme = "    python lab/inference_simulator.py\n"
    assert order(tmp_path, files, readme) == ["lab/inference_simulator.py", "train.py"]  # its owner says where to begin
    (tmp_path / "train.py").write_text("import torch\nprint('train')\n")
    (tmp_path / "lab/GUIDE.md").write_text("    python inference_simulator.py\n")
    (tmp_path / "README.md").write_text("")
    assert candidates(survey(tmp_path))[0].path == "lab/inference_simulator.py"  # where none is seen to call one


def test_where_no_call_of_a_model_is_seen_the_documented_start_is_a_candidate(tmp_path: Path) -> None:
    library = "import trainer\ntrainer.register(torch)\n"
    start = "from lib import base\nif __name__ == '__main__':\n    base.start()\n"
    files = {"lib/base.py": library, "go.py": start, "setup.py": "setup()\n", "lib/net_main.py": library}
    found = order(tmp_path, files, "    python setup.py install\n    python go.py")
    assert found == ["go.py", "lib/net_main.py"]  # what is only imported says nothing
    (tmp_path / "go.py").write_text(start)  # which does not even mention torch
    assert candidates(survey(tmp_path))[0].path == "go.py"
    (tmp_path / "eval.py").write_text(START + EVALUATE)
    assert candidates(survey(tmp_path))[0].path == "eval.py"


OPTIONS = """
parser = argparse.ArgumentParser()
parser.add_argument("--net", required=True, choices=["vgg", "resnet"])
parser.add_argument("--eval", action="store_true")
parser.add_argument("--weights", default=None)
parser.add_argument("--local_rank", type=int{rank})
"""


@pytest.mark.parametrize(
    ("readme", "told", "where"),
    [
        ("    python eval.py --net vgg\n    python eval.py --net resnet", "--net vgg", "README.md:1"),
        ("    python eval.py --net vgg\n    python eval.py --eval --net resnet", "--eval --net resnet", "README.md:2"),
        ("    python eval.py --net <net> --eval\n    python eval.py --net resnet", "--net resnet", "README.md:2"),
        ("    python eval.py --net lenet\n    python eval.py --net vgg --gone 1", "--net vgg", "README.md:2"),  # that alone
        ("    python eval.py --eval --net <net>", "--eval", "README.md:1"),
        ("    python train.py --net vgg --epochs 5", "--net vgg", "README.md:1"),
        ("    python eval.py", "", None),
        ("", "", None),
    ],
)
def test_a_script_is_told_what_its_documentation_tells(tmp_path: Path, readme: str, told: str, where: str | None) -> None:
    order(tmp_path, {"eval.py": OPTIONS.format(rank="") + EVALUATE}, readme)
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == (told.split(), where)


def test_what_the_lines_of_a_script_do_without_is_not_taken_from_those_of_another(tmp_path: Path) -> None:
    options = "parser = argparse.ArgumentParser()\nparser.add_argument('--weights', required=True)\n"
    options += "parser.add_argument('--image', required=True)\nparser.add_argument('--arch', default=None)\n"
    files = {"eval.py": options + EVALUATE, "train.py": options + TRAIN}
    order(tmp_path, files, "    python train.py --arch small --image a.png\n    python eval.py --weights big.pth --old 1\n")
    surveyed = survey(tmp_path)
    script = next(script for script in surveyed.scripts if script.path == "eval.py")
    told, where = documented_arguments(surveyed, script)
    assert (sorted(told), where) == (["--image", "--weights", "a.png", "big.pth"], "README.md:2")
    (tmp_path / "README.md").write_text("    python train.py --arch small --image a.png\n")
    assert sorted(documented_arguments(survey(tmp_path), script)[0]) == ["--arch", "--image", "a.png", "small"]


def test_a_documented_configuration_must_be_there(tmp_path: Path) -> None:
    options = OPTIONS.format(rank="").replace(', choices=["vgg", "resnet"]', "").replace("--net", "--cfg")
    files = {"tools/eval.py": options + EVALUATE}
    order(tmp_path, files, "    python eval.py --cfg=old.yaml\n    python eval.py --cfg here.yaml")
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == ([], None)
    for folder in (tmp_path, tmp_path / "tools"):
        (folder / "here.yaml").touch()
        assert documented_arguments(surveyed, surveyed.scripts[0]) == (["--cfg", "here.yaml"], "README.md:2")
        (folder / "here.yaml").unlink()


def test_a_configuration_is_looked_for_where_the_document_stands(tmp_path: Path) -> None:
    options = OPTIONS.format(rank="").replace(', choices=["vgg", "resnet"]', "").replace("--net", "--cfg")
    files = {"part/tools/eval.py": options + EVALUATE, "part/config/a.cfg": "", "part/README.md": ""}
    order(tmp_path, files)
    (tmp_path / "part" / "README.md").write_text("```\npython ./tools/eval.py\n--cfg ./config/a.cfg\n```\n")
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == (["--cfg", "./config/a.cfg"], "part/README.md:2")
    assert documented_folder(surveyed, surveyed.scripts[0]) == "part"


def test_a_launchers_rank_is_the_launchers_to_give(tmp_path: Path) -> None:
    readme = "    python -m torch.distributed.launch --nproc_per_node 8 eval.py --net vgg"
    order(tmp_path, {"eval.py": OPTIONS.format(rank=", required=True") + EVALUATE}, readme)
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0])[0] == ["--net", "vgg", "--local_rank", "0"]


@pytest.mark.parametrize(
    ("option", "lines", "told"),
    [
        ("'task', choices=['train', 'test']", ["train", "test --net b"], "test --net b"),
        ("'--mode', required=True", ["--mode train --net a", "--mode test --net b"], "--mode test --net b"),
        ("'--split', required=True", ["--split train", "--split test"], "--split train"),
    ],
)
def test_of_several_tasks_the_one_that_evaluates_is_told(tmp_path: Path, option: str, lines: list[str], told: str) -> None:
    parse = f"parser = argparse.ArgumentParser()\nparser.add_argument({option})\nparser.add_argument('--net', default='a')\n"
    readme = "".join(f"    python main.py {line}\n" for line in lines)
    order(tmp_path, {"main.py": f"{parse}args = parser.parse_args()\n{EVALUATE}"}, readme)
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0])[0] == told.split()


def test_what_needs_nothing_is_told_nothing_unless_asked(tmp_path: Path) -> None:
    files = {"eval.py": OPTIONS.format(rank="").replace("required=True", 'default="vgg"') + EVALUATE}
    order(tmp_path, files, "    python eval.py --eval")
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == ([], None)
    assert documented_arguments(surveyed, surveyed.scripts[0], always=True) == (["--eval"], "README.md:1")
    (tmp_path / "eval.py").write_text(START + OPTIONS.format(rank="").replace("required=True, ", "") + EVALUATE)
    surveyed = survey(tmp_path)
    (tmp_path / "README.md").write_text("    python eval.py")
    assert documented_arguments(survey(tmp_path), surveyed.scripts[0]) == ([], None)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == (["--eval"], "README.md:1")
    (tmp_path / "README.md").write_text("    python eval.py --net vgg")
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == (["--net", "vgg"], "README.md:1")


@pytest.mark.parametrize(
    ("readme", "folder"),
    [
        ("    python tools/eval.py", "."),
        ("    python eval.py", None),  # which is outdated, or follows a change of folders
        ("    python -m tools.eval", None),
        ("    python ../repo/tools/eval.py", None),
        ("", None),
    ],
)
def test_a_script_runs_where_people_stand_who_type_its_command(tmp_path: Path, readme: str, folder: str | None) -> None:
    order(tmp_path, {"tools/eval.py": EVALUATE}, readme)
    surveyed = survey(tmp_path)
    assert documented_folder(surveyed, surveyed.scripts[0]) == folder
    (tmp_path / "README.md").unlink()
    (tmp_path / "tools/README.md").write_text("    python eval.py")
    surveyed = survey(tmp_path)
    assert documented_folder(surveyed, surveyed.scripts[0]) == "tools"


def test_of_a_script_whose_options_are_not_known_only_the_readme_is_believed_at_once(tmp_path: Path) -> None:
    order(tmp_path, {"eval.py": EVALUATE}, "Nothing.", run_sh="python eval.py --old 1\n")
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == ([], None)
    assert documented_arguments(surveyed, surveyed.scripts[0], always=True) == (["--old", "1"], "run.sh:1")
    (tmp_path / "README.md").write_text("    python eval.py weights.pt image.png\n")
    surveyed = survey(tmp_path)
    assert documented_arguments(surveyed, surveyed.scripts[0]) == (["weights.pt", "image.png"], "README.md:1")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("photos/*.jpg", ["photos/0.jpg", "photos/1.jpg", "photos/2.jpg", "photos/3.jpg"]),
        ("photos/[45].jpg", ["photos/4.jpg", "photos/5.jpg"]),
        ("photos/*.png", ["photos/*.png"]),
        ("../*/photos/*.jpg", ["../*/photos/*.jpg"]),
        ("/etc/host*", ["/etc/host*"]),
    ],
)
def test_patterns_are_the_files_that_a_shell_puts_for_them(tmp_path: Path, written: str, told: list[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in range(7):
        (photos / f"{name}.jpg").write_bytes(b"")
    predict = "import sys\n" + EVALUATE.replace("def ", "import argparse\nargparse.ArgumentParser()\ndef ", 1)
    order(tmp_path, {"eval.py": predict}, f"    python eval.py {written}")
    found = survey(tmp_path)
    script = next(item for item in found.scripts if item.path == "eval.py")
    assert documented_arguments(found, script, always=True)[0] == told


def test_few_are_listed() -> None:
    assert listed(list("abcdef")) == "a, b, c, d, e, f"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


def test_what_was_made_of_a_notebook_comes_before_it(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 1, "source": START + EVALUATE}]
    (tmp_path / "try.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    app = "from tools import answer\nprint(answer())\n"
    assert order(tmp_path, {"app.py": app, "tools.py": ""}) == ["app.py", "try.ipynb"]


PARSES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("image_path")
parser.add_argument("checkpoint")
parser.add_argument("--units", type=int, nargs="*", default=[])
parser.add_argument("--save_dir")
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("readme", "told"),
    [
        ("    python predict.py input checkpoint --units 1 2", ["--units", "1", "2"]),
        ("    python predict.py input checkpoint --save_dir save_directory", []),
        ("    python predict.py samples/a.jpg best.pth", ["samples/a.jpg", "best.pth"]),
        ("    python predict.py samples checkpoint", []),
        ("    python predict.py /path/to/image best.pth --units 3", ["--units", "3"]),
    ],
)
def test_words_that_name_what_stands_there_are_left_open(tmp_path: Path, readme: str, told: list[str]) -> None:
    (tmp_path / "samples").mkdir()
    script = candidates_of(tmp_path, {"predict.py": PARSES + PREDICT}, readme)
    assert documented_arguments(survey(tmp_path), script)[0] == told


def test_what_says_most_is_taken_where_the_first_did_not_do(tmp_path: Path) -> None:
    readme = "    python predict.py a.jpg b.pth\n    python predict.py a.jpg b.pth --units 1 2\n"
    script = candidates_of(tmp_path, {"predict.py": PARSES + PREDICT}, readme)
    assert documented_arguments(survey(tmp_path), script)[0] == ["a.jpg", "b.pth"]
    assert documented_arguments(survey(tmp_path), script, always=True)[0] == ["a.jpg", "b.pth", "--units", "1", "2"]


def test_every_documented_line_is_an_alternative_and_so_is_each_file_beside_one_that_is_gone(tmp_path: Path) -> None:
    lines = ("-c configs/a.yaml", "-c configs/a.yaml --fast", "-c configs/old.yaml -d")
    readme = "".join(f"    python eval.py {line}\n" for line in lines)
    order(tmp_path, {"eval.py": EVALUATE}, readme, run_sh="python eval.py --config=gone/x.yaml\n")
    (tmp_path / "configs").mkdir()
    for name in ("a.yaml", "b.yaml", "c.json"):
        (tmp_path / "configs" / name).touch()
    surveyed = survey(tmp_path)
    found = [(" ".join(argv), where, verbatim) for argv, where, verbatim in other_arguments(surveyed, surveyed.scripts[0])]
    beside = "README.md:3 (whose configs/old.yaml is not here; configs/{}.yaml beside it was taken)"
    assert found == [
        ("-c configs/a.yaml --fast", "README.md:2", True),
        ("-c configs/a.yaml", "README.md:1", True),
        ("-c configs/a.yaml -d", beside.format("a"), False),
        ("-c configs/b.yaml -d", beside.format("b"), False),
    ]
    assert documented_arguments(surveyed, surveyed.scripts[0]) == (["-c", "configs/a.yaml"], "README.md:1")


def test_what_was_not_said_yet_comes_before_what_was(tmp_path: Path) -> None:
    """Where one choice that many lines share ends with an error, one without it comes soon."""
    lines = ("-c small -b new", "-c large -b new", "-c huge -b new", "-c small -b old")
    parses = PARSES.replace('parser.add_argument("--save_dir")', 'parser.add_argument("-c")\nparser.add_argument("-b")')
    readme = "".join(f"    python predict.py a.jpg b.pth {line}\n" for line in lines)
    script = candidates_of(tmp_path, {"predict.py": parses + PREDICT}, readme)
    found = [" ".join(argv[2:]) for argv, _, _ in other_arguments(survey(tmp_path), script)]
    assert found == ["-c small -b new", "-c large -b new", "-c small -b old", "-c huge -b new"]


def test_each_model_that_a_document_chooses_is_told_with_the_first_line_that_does(tmp_path: Path) -> None:
    parses = PARSES.replace('parser.add_argument("--save_dir")', 'parser.add_argument("--arch", "-a")')
    lines = [
        "-a small --units 1",
        "-a wide --units 2",
        "--arch small --units 3",
        "-a small --units 4",
        "-a <name>",
        "--units 5",
    ]
    readme = "".join(f"    python predict.py a.jpg b.pth {line}\n" for line in lines)
    script = candidates_of(tmp_path, {"predict.py": parses + PREDICT}, readme)
    found = documented_models(survey(tmp_path), script)
    assert found == [["a.jpg", "b.pth", *line.split()] for line in lines[:3]]


def candidates_of(root: Path, files: dict[str, str], readme: str) -> Script:
    order(root, files, readme)
    return candidates(survey(root))[0]
