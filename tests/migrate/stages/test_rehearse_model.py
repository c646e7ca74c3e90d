"""The model of a repository, taken from a run of its scripts: found where reading does not lead, with its own weights."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import headrace
from headrace.errors import NothingToMigrateError
from headrace.migrate.proving.worker_protocol import Rehearsed, SeenModel
from headrace.migrate.reading.facts import Script
from headrace.migrate.reading.recipe import LiveModel, Recipe
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.stages import rehearse_model as rehearsal
from headrace.migrate.stages.live_model import Run
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.survey.survey import survey

# The model lives in a global that a function sets, its class is made from a table of settings, and it is called by keyword.
NET = """
import json
from torch import nn


class Blocks(nn.Module):
    def __init__(self, widths, n):
        super().__init__()
        self.parts = nn.Sequential(nn.Conv2d(3, widths[0], 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.top = nn.Sequential(nn.Linear(widths[0], n))

    def forward(self, *, pixels, wanted=None):
        return {"loss": None, "scores": self.top(self.parts(pixels))}


TABLE = {"small": (Blocks, {"widths": [4], "n": 3})}


def make(settings):
    kind, options = TABLE[json.loads(settings)["kind"]]
    return kind(**options)
"""
SERVICE = """
import torch
from net import make

LABELS = ["ant", "bee", "cat"]
CURRENT = {}


def start():
    CURRENT["net"] = make('{"kind": "small"}')
    CURRENT["net"].load_state_dict(torch.load("weights/best.pt", map_location="cpu"))
    CURRENT["net"].eval()


def answer(images):
    with torch.inference_mode():
        scores = CURRENT["net"](pixels=images, wanted=None)["scores"]
    return [LABELS[int(i)] for i in scores.argmax(-1)]


start()
print(answer(torch.linspace(0, 1, 2 * 3 * 12 * 12).reshape(2, 3, 12, 12)))
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    root = tmp_path / "service"
    (root / "weights").mkdir(parents=True)
    (root / "net.py").write_text(NET)
    (root / "service.py").write_text(SERVICE)
    weights = {
        "parts.0.weight": torch.rand(4, 3, 3, 3), "parts.0.bias": torch.rand(4),
        "top.0.weight": torch.rand(3, 4), "top.0.bias": torch.rand(3),
    }  # fmt: skip
    torch.save(weights, root / "weights/best.pt")
    os.utime(root / "weights/best.pt", (1e9, 1e9))
    return root


def test_a_preview_says_what_runs_in_seconds_and_packages_nothing(service: Path, request: pytest.FixtureRequest) -> None:
    report = headrace.migrate(service)
    model = report.models[0]
    assert (model.name, model.factory, model.input, model.classes) == ("Blocks", "net.py:6", [3, 12, 12], 3), report.findings
    assert (model.built, model.artifact, model.parity.status) == (True, None, "not-run")
    assert report.chain[-1].kind == "call"
    assert (report.chain[-1].path, report.chain[-1].line) == ("service.py", 17)
    assert "PS503" not in {finding.code for finding in report.findings}
    (service / "weights/best.pt").unlink()
    request.getfixturevalue("torch_sandbox")  # the first ran as a user's does
    report = headrace.migrate(service)
    assert report.exit_status & 2
    assert any("best.pt" in finding.message for finding in report.findings), report.findings


EVALUATION = """
import torch
from torch import nn
import inputs

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
with torch.no_grad():
    for images in getattr(inputs, "batches")():
        print(net(images).argmax(1).tolist())
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_a_transform_that_reading_did_not_find_is_left_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "evaluate.py").write_text(EVALUATION)
    (tmp_path / "inputs.py").write_text("import torch\ndef batches():\n    yield torch.rand(2, 3, 12, 12)\n")
    report = headrace.migrate(tmp_path)
    assert (report.models[0].input, report.chain[-1].kind) == ([3, 12, 12], "call"), report.findings
    assert report.models[0].name == tmp_path.name  # which says more than Sequential
    assert "PS013" not in {finding.code for finding in report.findings}


@pytest.mark.usefixtures("torch_sandbox")
def test_weights_of_which_only_a_pointer_is_here_are_stood_in_for_and_nobodys(service: Path) -> None:
    """A clone without Git LFS: the model is seen all the same, and the report says what fetches its weights."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'5' * 64}\nsize 31379841\n"
    (service / "weights/best.pt").write_text(pointer)
    (service / ".gitattributes").write_text("*.pt filter=lfs diff=lfs merge=lfs -text\n")
    report = headrace.migrate(service)
    model = report.models[0]
    assert (model.name, model.input, model.classes) == ("Blocks", [3, 12, 12], 3), report.findings
    said = {finding.code: finding.message for finding in report.findings}
    assert "git lfs pull" in said["PS018"]
    assert "weights that are not yours stood in" in said["PS517"] or "weights/best.pt" in said["PS517"]
    assert report.exit_status & 2
    assert (service / "weights/best.pt").read_text() == pointer


@pytest.mark.usefixtures("torch_sandbox")
def test_the_packaged_weights_are_the_users_tensor_by_tensor(service: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = headrace.migrate(service, out=out, planned=False, verify=False)
    model = report.models[0]
    assert (model.parity.status, bool(model.artifact), model.random_weights) == ("passed", True, False), report.findings
    weights = torch.load(service / "weights/best.pt")
    graph = onnx.load(str(out / "models/Blocks/1/model.onnx")).graph
    packaged = [numpy_helper.to_array(item) for item in graph.initializer]
    for name, value in weights.items():
        forms = (value.numpy(), value.numpy().T)
        assert any(np.array_equal(one, form) for one in packaged for form in forms), name
    assert (out / "models/Blocks/labels.txt").read_text().split() == ["ant", "bee", "cat"]


LOOP = """
import torch
from net import make

net = make('{"kind": "small"}')
net.load_state_dict(torch.load("weights/absent.pt", map_location="cpu"))
net.eval()
images = torch.linspace(0, 1, 4 * 3 * 12 * 12).reshape(4, 3, 12, 12)
with torch.no_grad():
    for batch in images.split(2):
        scores = net(batch)
        print(scores.argmax(1).tolist())
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_given_weights_are_packaged_though_the_script_ran_with_a_stand_in_for_its_own(service: Path, tmp_path: Path) -> None:
    (service / "service.py").unlink()
    (service / "evaluate.py").write_text(LOOP)
    text = (service / "net.py").read_text()
    text = (
        text.replace("*, pixels, wanted=None", "pixels")
        .replace('{"loss": None, "scores": ', "")
        .replace("(pixels))}", "(pixels))")
    )
    (service / "net.py").write_text(text)
    out = tmp_path / "out"
    given = service / "weights/best.pt"
    report = headrace.migrate(service, out=out, checkpoint=given, planned=False)
    model = report.models[0]
    assert (model.parity.status, bool(model.artifact), model.random_weights) == ("passed", True, False), report.findings
    assert [script.executed for script in report.scripts] == ["passed"], report.scripts
    assert [(item.source, item.path) for item in report.checkpoints if item.loaded] == [("--checkpoint", str(given))]
    graph = onnx.load(str(out / f"models/{model.name}/1/model.onnx")).graph
    packaged = [numpy_helper.to_array(item) for item in graph.initializer]
    bias = torch.load(given)["top.0.bias"].numpy()
    assert any(np.array_equal(one, bias) for one in packaged)


PLANNED = """
import argparse
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))

parser = argparse.ArgumentParser()
parser.add_argument("--plan")
parser.add_argument("--gone")
args = parser.parse_args()
if not args.plan:
    raise SystemExit(2)
net = Net({"wide": 8}[args.plan]).eval()
for x, y in [(torch.rand(4, 3, 8, 8), torch.arange(4) % 3)]:
    print((net(x).argmax(1) == y).sum())
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_what_stops_is_run_as_it_is_documented_and_then_the_next_is(tmp_path: Path) -> None:
    readme = "    $ python eval.py\n    $ python evaluate.py --plan wide\n"
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "eval.py").write_text(PLANNED.replace('"wide"', '"gone"'))
    (tmp_path / "evaluate.py").write_text(PLANNED)
    report = headrace.migrate(tmp_path)
    assert (report.models[0].name, report.models[0].input, report.models[0].classes) == ("Net", [3, 8, 8], 3), report.findings
    said = [(item.code, item.path, item.message) for item in report.findings if item.code in ("PS011", "PS516")]
    assert (
        "PS011",
        "evaluate.py",
        'told what README.md:2 tells: --plan wide; --entry "evaluate.py ..." tells something else; told nothing, and what was '
        "guessed, it ends with KeyError: 'classproperty' (evaluate.py:21)",
    ) in said
    assert ("PS011", "evaluate.py", "the model is that of this script; --entry takes another (eval.py)") in said
    assert [path for code, path, message in said if code == "PS516" and message.startswith("eval.py was run")] == ["eval.py"]


BROKEN = PLANNED.replace('"--plan"', '"--plan", default="ff"').replace('{"wide": 8}', '{"ff": Gone, "wide": 8}')


@pytest.mark.usefixtures("torch_sandbox")
def test_where_the_default_is_broken_each_documented_line_is_tried_and_the_default_said_to_be(tmp_path: Path) -> None:
    lines = ("--plan ff --gone x", "--plan old --gone x", "--plan wide")
    (tmp_path / "run.sh").write_text("".join(f"python main.py {line}\n" for line in lines))
    (tmp_path / "main.py").write_text(BROKEN.replace('{"ff": Gone', '{**({"ff": Gone} if args.plan == "ff" else {})'))
    report = headrace.migrate(tmp_path)
    assert (report.models[0].name, report.models[0].classes) == ("Net", 3), report.findings
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert said == [
        'told what run.sh:3 tells: --plan wide; --entry "main.py ..." tells something else; told nothing it ends with '
        "NameError: name 'Gone' is not defined (main.py:21)"
    ]


CONFIGURED = """
import json, sys
import torch
from net import Net

flag, path = sys.argv[1:]
assert flag == "-c"
net = Net(**json.load(open(path)))
training = torch.optim.SGD(net.parameters(), 0.1)
if net.evaluates:
    net.eval()
for x, y in [(torch.rand(4, 3, 8, 8), torch.arange(4) % 3)]:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    print(loss)
"""
CONFIGURED_NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width, evaluates):
        super().__init__()
        self.evaluates = evaluates
        self.conv = nn.Conv2d(3, width, 3)
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_in_place_of_a_documented_configuration_that_is_gone_the_one_beside_it_is_taken_that_evaluates(tmp_path: Path) -> None:
    files = {
        "README.md": "    python main.py -c configs/000.json\n", "main.py": CONFIGURED, "net.py": CONFIGURED_NET,
        "configs/001.json": "{}", "configs/a.json": '{"width": 4, "evaluates": false}',
        "configs/b.json": '{"width": 5, "evaluates": true}', "configs/c.json": '{"width": 6, "evaluates": true}',
        "configs/notes.txt": "",
    }  # fmt: skip
    (tmp_path / "configs").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    report = headrace.migrate(tmp_path)
    assert (report.models[0].name, report.models[0].classes) == ("Net", 3), report.findings
    (said,) = [item.message for item in report.findings if item.code == "PS011"]
    assert said.startswith(
        "told what README.md:1 (whose configs/000.json is not here; configs/b.json beside it was taken) tells: "
        '-c configs/b.json; --entry "main.py ..." tells something else; told nothing, and what was guessed, it ends '
    )


@pytest.mark.usefixtures("torch_sandbox")
def test_what_is_not_here_is_said_to_be_loaded_where_the_script_of_the_model_loads_it(tmp_path: Path) -> None:
    load = "net.load_state_dict(torch.load(path))\nnet.eval()\nprint(net(torch.zeros(1, 3, 32, 32)).argmax(1))\n"
    build = "import torch\nfrom torch import nn\n\nnet = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(3600, 3))\n"
    (tmp_path / "README.md").write_text("    python main.py\n")
    (tmp_path / "main.py").write_text(f"{build}path = 'main.pth'\n{load}")
    (tmp_path / "another.py").write_text(f"{build}path = 'another.pth'\n{load}")
    report = headrace.migrate(tmp_path)
    (message,) = [item.message for item in report.findings if item.code == "PS503"]
    assert "(the script loads path (main.py:6))" in message


TWO = """
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, {width}, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear({width}, 3)).eval()
for x, y in [(torch.rand(4, 3, 8, 8), torch.arange(4) % 3)]:
    print((net(x).argmax(1) == y).sum())
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_of_several_scripts_the_one_whose_model_the_given_checkpoint_fits_is_taken(tmp_path: Path) -> None:
    for name, width in (("eval_a", 4), ("eval_b", 6)):
        (tmp_path / f"{name}.py").write_text(TWO.format(width=width))
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 3)
    )
    torch.save(net.state_dict(), tmp_path / "given.pth")
    report = headrace.migrate(tmp_path, checkpoint=tmp_path / "given.pth")
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert any(message == "the model is that of this script; --entry takes another (eval_a.py)" for message in said), said


@pytest.mark.parametrize(
    ("slow", "preview", "left"),
    [
        (1.0, False, "for 300 s to see their models; --entry takes one that was not: eval_c.py"),
        (1.5, False, "for 450 s to see their models"),
        (
            1.0,
            True,
            "for 20 s to see their models; --entry takes one that was not: eval_b.py, eval_c.py; "
            "with --out OUT the search goes on for longer",
        ),
    ],
)
def test_scripts_are_run_to_see_their_models_only_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: float, preview: bool, left: str
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    for name in ("eval_a", "eval_b", "eval_c"):
        (root / f"{name}.py").write_text(TWO.format(width=4))
    clock, seen = [0.0], []

    def run(migration: Migration, script: Script, *rest: object) -> Run:
        clock[0] += 200.0
        seen.append(script.path)
        stopped = Rehearsed(models=(), why="ValueError: no", where=None, weights_from=())
        return Run(script, Recipe(root=str(root), script=script.path), stopped, None, None, as_read=True)

    monkeypatch.setattr(rehearsal.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(rehearsal, "_run", run)
    monkeypatch.setattr(rehearsal, "patience", lambda: slow)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(preview=preview), stages=Stages(None))
    rehearsal.rehearse_model(migration, NothingToMigrateError("none"), entry=None, model=None)
    assert seen == [name for name in ("eval_a.py", "eval_b.py", "eval_c.py") if name not in left]
    said = [item.message for item in migration.findings if "to see their models" in item.message]
    assert said == [f"scripts were run {left}"]


@pytest.mark.parametrize(("finds", "most"), [(False, 8), (True, 3)])
def test_more_scripts_are_run_where_none_came_to_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finds: bool, most: int
) -> None:
    root, seen = tmp_path / "repository", []
    root.mkdir()
    for number in range(9):
        (root / f"eval_{number}.py").write_text(TWO.format(width=4))
    model = SeenModel(
        live=LiveModel(class_name="Net", ordinal=0, evaluating=False, row=(3, 8, 8)), factory=None, parameters=7, site="a.py:5",
        calls=2, dtype="float32", low=0.0, high=1.0, output="[4, 3]", tasks=("single-label",), widths=(3,), as_read=None,
        fits=None, trained=True, evaluates=False, in_training=(), feeds=(), labels=(None,), dataset=None,
    )  # fmt: skip

    def run(migration: Migration, script: Script, *rest: object) -> Run:
        seen.append(script.path)
        ended = Rehearsed(
            models=(model,) if finds else (), why=None if finds else "ValueError: no", where=None, weights_from=()
        )
        return Run(script, Recipe(root=str(root), script=script.path), ended, model if finds else None, None, as_read=True)

    monkeypatch.setattr(rehearsal, "_run", run)
    monkeypatch.setattr(rehearsal, "resolved", lambda migration, run, static, others: run)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    rehearsal.rehearse_model(migration, NothingToMigrateError("none"), entry=None, model=None)
    assert len(seen) == most


def test_what_was_read_with_the_first_configuration_tells_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, seen = tmp_path / "repository", []
    (root / "conf").mkdir(parents=True)
    for name in ("a", "b", "c"):
        (root / "conf" / f"{name}.yaml").write_text("width: 4\n")
    asks = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--config', required=True)\n"
    (root / "main.py").write_text(f"{asks}args = parser.parse_args()\n{TWO.format(width=4)}")
    read = resolve(survey(root))

    def run(
        migration: Migration, script: Script, given: list[str], static: object, model: object, told: tuple = ((), None)
    ) -> Run:
        seen.append((static is read, list(told[0])))
        stopped = Rehearsed(models=(), why="ValueError: no", where=f"main.py:{len(seen)}", weights_from=())
        return Run(script, Recipe(root=str(root), script=script.path), stopped, None, None, as_read=True)

    monkeypatch.setattr(rehearsal, "_run", run)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    rehearsal.rehearse_model(migration, read, entry=None, model=None)
    assert seen == [(True, []), (False, ["--config", "conf/b.yaml"]), (False, ["--config", "conf/c.yaml"])]


def test_after_a_script_that_lacked_a_library_come_those_that_do_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, seen = tmp_path / "repository", []
    root.mkdir()
    (root / "settings.py").write_text("import fastargs\n")
    for name, first in {"eval_a": "import fastargs\n", "eval_b": "import settings\n", "eval_c": ""}.items():
        (root / f"{name}.py").write_text(first + TWO.format(width=4))

    def run(migration: Migration, script: Script, *rest: object) -> Run:
        seen.append(script.path)
        stopped = Rehearsed(models=(), why="TypeError: no", where=None, weights_from=(), absent=("fastargs",))
        return Run(script, Recipe(root=str(root), script=script.path), stopped, None, None, as_read=True)

    monkeypatch.setattr(rehearsal, "_run", run)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    rehearsal.rehearse_model(migration, NothingToMigrateError("none"), entry=None, model=None)
    assert seen == ["eval_a.py", "eval_c.py", "eval_b.py"]


@pytest.mark.parametrize(
    ("why", "where", "order"),
    [
        ("ImportError: no", "net.py:2", "acb"),
        ("ImportError: no", "eval_a.py:1", "abc"),
        ("TypeError: no", "net.py:2", "abc"),
    ],
)
def test_after_a_script_that_an_import_stopped_come_those_that_do_without_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, where: str, order: str
) -> None:
    """All eight runs ended at three files, and the notebook that has a model was not run."""
    root, seen = tmp_path / "repository", []
    root.mkdir()
    (root / "net.py").write_text("import torch\nfrom torch import none\n")
    (root / "tools.py").write_text("import net\n")
    for name, first in {"eval_a": "import net\n", "eval_b": "import tools\n", "eval_c": ""}.items():
        (root / f"{name}.py").write_text(first + TWO.format(width=4))

    def run(migration: Migration, script: Script, *rest: object) -> Run:
        seen.append(script.path)
        stopped = Rehearsed(models=(), why=why, where=where, weights_from=())
        return Run(script, Recipe(root=str(root), script=script.path), stopped, None, None, as_read=True)

    monkeypatch.setattr(rehearsal, "_run", run)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    rehearsal.rehearse_model(migration, NothingToMigrateError("none"), entry=None, model=None)
    assert [path.removesuffix(".py")[-1] for path in seen[:3]] == list(order)


@pytest.mark.parametrize(
    ("documents", "order"),
    [
        ("", ["eval_a.py", "eval_c.py", "eval_b.py"]),
        ("python eval_a.py\npython eval_b.py\n", ["eval_a.py", "eval_b.py", "eval_c.py"]),
        ("python eval_a.py\npython eval_b.py\npython eval_c.py\n", ["eval_a.py", "eval_c.py", "eval_b.py"]),
    ],
)
def test_after_a_script_that_showed_no_model_comes_that_in_which_one_was_read_but_documented_ones_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: str, order: list[str]
) -> None:
    root, seen = tmp_path / "repository", []
    root.mkdir()
    for name in ("eval_a", "eval_b", "eval_c"):
        (root / f"{name}.py").write_text(TWO.format(width=4))
    (root / "README.md").write_text(f"```\n{documents}```\n")

    def run(migration: Migration, script: Script, *rest: object) -> Run:
        seen.append(script.path)
        stopped = Rehearsed(models=(), why="ValueError: no", where=None, weights_from=())
        return Run(script, Recipe(root=str(root), script=script.path), stopped, None, None, as_read=True)

    monkeypatch.setattr(rehearsal, "_run", run)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    (last,) = (script for script in migration.surveyed.scripts if script.path == "eval_c.py")
    rehearsal.rehearse_model(migration, replace(resolve(migration.surveyed), script=last), entry=None, model=None)
    assert seen == order


TRAINS = """
import argparse, sys
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["narrow", "wide"], {default})
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body, self.top = nn.Conv2d(3, width, 3), nn.Linear(width, 3)

    def forward(self, x):
        return self.top(self.body(x).mean((2, 3)))


net = Net(6 if args.model == "wide" else 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
images, wanted = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
for epoch in range(2):
    loss = nn.functional.cross_entropy(net(images), wanted)
    loss.backward()
    optimizer.step()
    torch.save({saved}, "kept/best.pth")
net.eval()
with torch.no_grad():
    print(int((net(images).argmax(1) == wanted).sum()))
"""


@pytest.mark.usefixtures("torch_sandbox")
# How either is loaded is held by worker/test_checkpoint.
@pytest.mark.parametrize("whole", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_weights_are_those_of_the_file_in_which_the_script_saves_its_model(tmp_path: Path, whole: bool) -> None:
    root = tmp_path / "repository"
    (root / "kept").mkdir(parents=True)
    saved = "net" if whole else "{'state': 1, 'model': net.state_dict()}"
    (root / "train.py").write_text(TRAINS.format(default="default='narrow'", saved=saved))
    weights = {name: torch.rand(shape) for name, shape in SHAPES.items()}
    if whole:
        space: dict[str, object] = {"__name__": "trained_elsewhere"}
        exec(TRAINS.format(default="", saved="net").partition("net = Net")[0].replace("parser.parse_args()", "None"), space)
        net = space["Net"](4)  # type: ignore[operator]
        net.load_state_dict(weights)
        monkey = sys.modules["trained_elsewhere"] = types.ModuleType("trained_elsewhere")
        vars(monkey).update(space)
        torch.save(net, root / "kept/best.pth")
        del sys.modules["trained_elsewhere"]
    else:
        torch.save(weights, root / "kept/best.pth")
    report = headrace.migrate(root, out=tmp_path / "out", planned=False, verify=False)
    assert report.models[0].artifact is not None, [item.message for item in report.findings]
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert said == ["the weights are those of kept/best.pth, where train.py saves its model; --checkpoint FILE takes others"]
    assert [(item.source, item.path, item.loaded) for item in report.checkpoints] == [("train.py", "kept/best.pth", True)]
    graph = headrace.load(tmp_path / "out" / report.models[0].artifact)
    images = torch.rand(2, 3, 8, 8)
    features = torch.nn.functional.conv2d(images, weights["body.weight"], weights["body.bias"]).mean((2, 3))
    expected = features @ weights["top.weight"].T + weights["top.bias"]
    torch.testing.assert_close(torch.as_tensor(graph(images)), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("torch_sandbox")
def test_random_weights_are_for_where_the_repository_has_none(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "train.py").write_text(TRAINS.format(default="default='narrow'", saved="net.state_dict()"))
    torch.save({name: torch.rand(shape) for name, shape in SHAPES.items()}, tmp_path / "kept/best.pth")
    report = headrace.migrate(tmp_path, random_weights=True)
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert said == ["the weights are those of kept/best.pth, where train.py saves its model; --checkpoint FILE takes others"]


SHAPES = {"body.weight": (4, 3, 3, 3), "body.bias": (4,), "top.weight": (3, 4), "top.bias": (3,)}


@pytest.mark.usefixtures("torch_sandbox")
def test_a_file_that_another_model_was_saved_in_gives_no_weights(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "train.py").write_text(TRAINS.format(default="default='wide'", saved="net.state_dict()"))
    torch.save({name: torch.rand(shape) for name, shape in SHAPES.items()}, tmp_path / "kept/best.pth")
    report = headrace.migrate(tmp_path)
    assert [item.code for item in report.findings if item.severity == "error"] == ["PS503"]


@pytest.mark.usefixtures("torch_sandbox")
def test_the_choice_is_made_whose_model_the_given_checkpoint_fits(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "train.py").write_text(TRAINS.format(default="default='wide'", saved="net.state_dict()"))
    torch.save({name: torch.rand(shape) for name, shape in SHAPES.items()}, tmp_path / "given.pth")
    report = headrace.migrate(tmp_path, checkpoint=tmp_path / "given.pth")
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert any(message.startswith("told what the checkpoint tells: --model narrow") for message in said), said


@pytest.mark.usefixtures("torch_sandbox")
def test_the_documented_line_is_told_whose_model_the_given_checkpoint_fits(tmp_path: Path) -> None:
    """The choices are read off a module when the script runs, so that its documentation alone says what they may be."""
    (tmp_path / "kept").mkdir()
    text = TRAINS.format(default="default='wide'", saved="net.state_dict()").replace('["narrow", "wide"]', "sorted(KNOWN)")
    (tmp_path / "train.py").write_text("KNOWN = {name for name in ('narrow', 'wide')}\n" + text)
    lines = [f"    python train.py --model {name}\n" for name in ("wide", "narrow")]
    (tmp_path / "TRAINING.md").write_text("".join(lines))
    torch.save({name: torch.rand(shape) for name, shape in SHAPES.items()}, tmp_path / "given.pth")
    report = headrace.migrate(tmp_path, checkpoint=tmp_path / "given.pth")
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert any(message.startswith("told what the checkpoint tells: --model narrow") for message in said), said


FOLDERS = """
import torch
from torch import nn
from torchvision import datasets, transforms

images = datasets.ImageFolder("data/train", transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()]))
model = nn.Sequential(nn.Flatten(), nn.Linear(16 * 16 * 3, {count})).eval()
with torch.no_grad():
    for batch, targets in torch.utils.data.DataLoader(images, batch_size=4):
        print((model(batch).argmax(1) == targets).sum())
"""


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.parametrize(("count", "guessed"), [("len(images.classes)", True), ("10", False)])
def test_a_count_of_classes_that_only_made_data_has_is_told(tmp_path: Path, count: str, *, guessed: bool) -> None:
    pytest.importorskip("torchvision")
    (tmp_path / "main.py").write_text(FOLDERS.format(count=count))
    report = headrace.migrate(tmp_path, random_weights=True)
    assert report.models[0].classes == 10, report.findings
    said = [finding.message for finding in report.findings if finding.code == "PS532"]
    assert [message.partition(":")[0] for message in said] == ["nothing states how many classes there are"] * guessed


SEEN = SeenModel(
    live=LiveModel(class_name="Net", ordinal=0, evaluating=True, row=(3, 8, 8)), factory=None, parameters=7, site="a.py:5",
    calls=2, dtype="float32", low=0.0, high=1.0, output="[4, 3]", tasks=("single-label",), widths=(3,), as_read=None, fits=None,
    trained=True, evaluates=True, in_training=(), feeds=(), labels=(None,), dataset=None,
)  # fmt: skip
Shown = tuple[SeenModel, Script, str]
"""The model that a run shows, its script, and the file that gave the weights, if one did."""
Choose = Callable[[int, Callable[[int, Script], Shown]], tuple[str, list[str]]]


@pytest.fixture
def chosen_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choose:
    """`chosen_of(count, shown)`: of so many scripts the one whose run is taken, and all that were run in their order, where
    `shown(number, script)` is what the run of that number shows."""

    def choose(count: int, shown: Callable[[int, Script], Shown]) -> tuple[str, list[str]]:
        root, seen = tmp_path / "repository", list[str]()
        root.mkdir()
        for number in range(count):
            (root / f"eval_{number}.py").write_text(TWO.format(width=4))

        def run(migration: Migration, script: Script, *rest: object) -> Run:
            model, script, weights = shown(len(seen), script)
            seen.append(script.path)
            ended = Rehearsed(models=(model,), why=None, where=None, weights_from=(weights,) if weights else ())
            return Run(script, Recipe(root=str(root), script=script.path), ended, model, None, as_read=True)

        monkeypatch.setattr(rehearsal, "_run", run)
        monkeypatch.setattr(rehearsal, "resolved", lambda migration, run, static, others: run)
        migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
        found = rehearsal.rehearse_model(migration, NothingToMigrateError("none"), entry=None, model=None)
        assert isinstance(found, Run)
        return found.script.path, seen

    return choose


@pytest.mark.parametrize(
    ("tasks", "taken", "runs"),
    [
        (("embedding", "single-label"), 1, 2),
        (("embedding", "", "embedding", "single-label"), 3, 4),
        (("",), 0, 1),
        (("embedding",) * 8, 0, 8),
        (("single-label", "embedding"), 0, 1),
        (("one number", "embedding", "single-label"), 2, 3),
    ],
)
def test_a_classifier_is_meant_where_another_script_compares_features(
    chosen_of: Choose, tasks: tuple[str, ...], taken: int, runs: int
) -> None:
    def shown(number: int, script: Script) -> Shown:
        task = tasks[number]
        widths = ({"single-label": 5, "one number": 1}.get(task, 3),)
        return replace(SEEN, tasks=(task.replace("one number", ""),), widths=widths), script, "net.pth"

    path, seen = chosen_of(9, shown)
    assert (path, len(seen)) == (seen[taken], runs)


@pytest.mark.parametrize(
    ("weights", "taken", "runs"), [("", 1, 2), ("/c/torch/hub/checkpoints/a.pth", 1, 2), ("net.pth", 0, 1)]
)
def test_a_classifier_is_meant_where_nothing_judges_what_another_gives(
    chosen_of: Choose, weights: str, taken: int, runs: int
) -> None:
    """Numbers for a clustering, say; but not where they are of weights of the user's."""

    def shown(number: int, script: Script) -> Shown:
        return replace(SEEN, tasks=(("", "single-label")[number],)), script, weights

    path, seen = chosen_of(2, shown)
    assert (path, len(seen)) == (seen[taken], runs)


@pytest.mark.parametrize(("trains", "stored", "taken"), [(False, True, 0), (True, True, 1), (False, False, 1)])
def test_a_page_that_forgets_to_evaluate_has_the_users_weights_where_the_training_has_none(
    chosen_of: Choose, trains: bool, stored: bool, taken: int
) -> None:
    def shown(number: int, script: Script) -> Shown:
        page = number == 0
        script = replace(script, roles=("train",) if page and trains else ("predict",))
        return replace(SEEN, live=replace(SEEN.live, evaluating=not page)), script, "net.pth" if page and stored else ""

    path, seen = chosen_of(2, shown)
    assert (path, len(seen)) == (seen[taken], 2)


@pytest.mark.usefixtures("torch_sandbox")
def test_where_nothing_judges_the_model_of_the_first_configuration_the_others_are_tried(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for name, kind in {"a_clusters": "features", "b_plain": "net", "c_other": "net"}.items():
        (tmp_path / "conf" / f"{name}.yaml").write_text(f"kind: {kind}\n")
    (tmp_path / "main.py").write_text(
        "import argparse\n\nimport torch\nimport yaml\nfrom torch import nn\n\n"
        "class Features(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 4, 3)\n\n"
        "    def forward(self, x):\n        return self.conv(x).flatten(1)\n\n"
        "class Net(Features):\n    def __init__(self):\n        super().__init__()\n        self.top = nn.LazyLinear(5)\n\n"
        "    def forward(self, x):\n        return self.top(super().forward(x))\n\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--config-file', required=True)\n"
        "kind = yaml.safe_load(open(parser.parse_args().config_file))['kind']\n"
        "images, labels = torch.rand(4, 3, 12, 12), torch.tensor([0, 1, 2, 3])\n"
        "if kind == 'features':\n    print(Features()(images).shape)\n"
        "else:\n    net = Net()\n    loss = nn.functional.cross_entropy(net(images), labels)\n    loss.backward()\n"
    )
    report = headrace.migrate(tmp_path)
    assert (report.models[0].name, report.models[0].classes) == ("Net", 5), report.findings
    said = [item.message for item in report.findings if item.code == "PS011"]
    assert said == [
        "told what another of 3 configurations tells: --config-file conf/b_plain.yaml; "
        '--entry "main.py ..." tells something else'
    ]


@pytest.mark.usefixtures("torch_sandbox")
def test_a_script_that_only_leads_to_torch_is_run_where_the_others_show_no_model(tmp_path: Path) -> None:
    """It holds no call of a model: the one that it makes goes through the data by itself."""
    files = {
        "net.py": (
            "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self, data):\n        super().__init__()\n"
            "        self.data = data\n        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), "
            "torch.nn.Linear(144, 5))\n\n    def forward(self):\n"
            "        return [self.predict(images) for images in self.data]\n\n    def predict(self, images):\n"
            "        return self.body(images).argmax(1)\n\n\ndef build():\n"
            "    return Net([torch.rand(2, 3, 8, 8) for _ in range(2)]).eval()\n"
        ),
        "start.py": "from net import build\n\nif __name__ == '__main__':\n    net = build()\n    print(len(net()))\n",
        "broken.py": (
            "import torch\nfrom net import build\n\nnet = build()\n"
            "for images in torch.missing():\n    print(net.body(images))\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    report = headrace.migrate(tmp_path)
    assert [(model.input, model.classes) for model in report.models] == [([3, 8, 8], 5)], report.findings
    assert [item.path for item in report.findings if item.code == "PS516"] == ["broken.py"]


@pytest.mark.usefixtures("torch_sandbox")
def test_a_run_that_no_signal_ends_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that solves equations for minutes; more time for the migration gives it none."""
    monkeypatch.setattr(rehearsal, "_SECONDS", 0.7)
    blocks = (
        "import signal, time\nimport torch\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\nwhile True:\n    pass\n"
    )
    (tmp_path / "main.py").write_text(f"{blocks}model = torch.load('net.pt')\nmodel(torch.rand(1, 3, 8, 8))\n")
    report = headrace.migrate(tmp_path)
    (said,) = [item.message for item in report.findings if item.code == "PS516"]
    assert said.startswith("main.py was run to see its model, and was still running after")
    assert "--timeout" not in said


PIXELS = """
import numpy as np
import torch
from torch import nn

pixels = torch.from_numpy(np.load("pixels.npz")["X"]).float()
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
net.load_state_dict(torch.load("net.pth"))
net.eval()
with torch.no_grad():
    for row in range(len(pixels)):
        print(net(pixels[row].reshape(1, 1, 8, 8)).softmax(1).argmax(1))
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_arrays_that_a_script_reads_are_not_its_weights(tmp_path: Path) -> None:
    """The package says that its weights are random, as the report does."""
    root, out = tmp_path / "it", tmp_path / "out"
    root.mkdir()
    (root / "predict.py").write_text(PIXELS)
    np.savez(root / "pixels.npz", X=np.random.default_rng(0).integers(0, 255, (4, 8, 8)))
    os.utime(root / "pixels.npz", (1e9, 1e9))
    report = headrace.migrate(root, out=out, random_weights=True, planned=False, verify=False)
    (model,) = report.models
    assert model.random_weights, report.findings
    assert [(item.path, item.loaded) for item in report.checkpoints] == [("net.pth", False)]
    manifest = json.loads((out / str(model.artifact) / "1/headrace.json").read_text())
    assert manifest["provenance"]["random_weights"] is True


@pytest.mark.usefixtures("torch_sandbox")
@pytest.mark.parametrize("line", ["python run.py --season winter", "python run.py"])
def test_what_a_script_that_needs_no_arguments_is_documented_with_is_told(tmp_path: Path, line: str) -> None:
    """It may choose other weights."""
    parser = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--season', default='summer', choices=['summer', 'winter'])\nargs = parser.parse_args()\n"
    )
    (tmp_path / "run.py").write_text(parser + TWO.format(width=4))
    (tmp_path / "README.md").write_text(f"# Seasons\n\n    {line}\n")
    said = [item.message for item in headrace.migrate(tmp_path, random_weights=True).findings if item.code == "PS011"]
    found = [message for message in said if message.startswith("run without arguments")]
    assert len(found) == ("--season" in line), said
    assert all(message.endswith("--entry 'run.py --season winter' does so") for message in found)


RESUMES = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=3)
parser.add_argument("--resume", default="")
args = parser.parse_args()
net = nn.Sequential(nn.Conv2d(3, args.width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(args.width, 3))
if args.resume:
    net.load_state_dict(torch.load(args.resume))
net.eval()
with torch.no_grad():
    print(net(torch.ones(2, 3, 8, 8)).argmax(1))
"""


@pytest.mark.usefixtures("torch_sandbox")
def test_the_documented_weights_that_are_here_come_before_a_run_without_any(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(RESUMES)
    (tmp_path / "README.md").write_text("    python run.py --width 5 --resume kept/best.pth\n")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.Flatten(), torch.nn.Flatten(), torch.nn.Linear(5, 3))
    (tmp_path / "kept").mkdir()
    torch.save(net.state_dict(), tmp_path / "kept/best.pth")
    os.utime(tmp_path / "kept/best.pth", (1e9, 1e9))
    report = headrace.migrate(tmp_path)
    assert [item.code for item in report.findings if item.severity == "error"] == []
    (said,) = [item.message for item in report.findings if item.code == "PS011"]
    assert said.startswith("told what README.md:1 tells: --width 5 --resume kept/best.pth")
