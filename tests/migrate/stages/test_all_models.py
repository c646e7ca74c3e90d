"""Every model of a repository, side by side: each as the repository states it, and one failure stops no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import AmbiguousError
from headrace.migrate.reporting.report import Report
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.stages.all_models import resolve_all, split_models, unique_names
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.usefixtures("warm_sandbox")

MODELS = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, width, num_classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, 2, 1)
        self.norm = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def small():
    return Small(4)


def SMALL():
    return Small(6)


class Menu(Small):
    def __init__(self, width):
        super().__init__(width, 7)


class Untold(nn.Module):
    def __init__(self, depth, num_classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, depth, 3)
        self.fc = nn.Linear(depth, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


class Dying(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        import os
        os.kill(os.getpid(), 9)
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


class Raising(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)
        raise RuntimeError("no such layer")

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))
"""
EVALUATE = """
import torch
from models import *

net = small()
# net = SMALL()
# net = Menu(5)   # wider
# net = Untold(depth)
net.eval()
loader = [(torch.rand(5, 3, 16, 16), torch.arange(5) % 4) for _ in range(2)]
correct = 0
with torch.no_grad():
    for images, targets in loader:
        outputs = net(images)
        correct += (outputs.argmax(1) == targets).sum().item()
print("correct", correct)
"""


def repository(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "models.py").write_text(MODELS)
    (root / "evaluate.py").write_text(EVALUATE)
    return root


@pytest.fixture(scope="module")
def migrated(once: Callable[..., Any]) -> tuple[Report, Path]:
    return once("all-models", _migrated)


def _migrated(folder: Path) -> tuple[Report, Path]:
    root, out = repository(folder / "repository"), folder / "out"
    return headrace.migrate(root, out=out, all_models=True, random_weights=True, precision="fp32", tuning_seconds=0.2), out


def test_each_is_built_proved_packaged_and_served(migrated: tuple[Report, Path]) -> None:
    report, out = migrated
    rows = {model.name: (model.input, model.classes, model.parity.status, model.served) for model in report.models}
    assert rows["small"] == ([3, 16, 16], 4, "passed", True), report.findings
    assert rows["SMALL_2"] == ([3, 16, 16], 4, "passed", True)
    assert rows["Menu"] == ([3, 16, 16], 7, "passed", True)
    assert {path.parent.name for path in out.glob("models/*/1")} == {"small", "SMALL_2", "Menu"}
    assert report.scores()["parity_passed"] == [3, 3]


def test_failures_stop_no_other_and_say_why(migrated: tuple[Report, Path]) -> None:
    report, _ = migrated
    why = {model.name: model.parity.why or "" for model in report.models if not model.built}
    assert why.keys() == {"Dying", "Raising", "Untold"}
    assert "ended with status -9" in why["Dying"]
    assert "no such layer" in why["Raising"]
    assert 'it needs depth, which nothing in the repository states; give --model "Untold(...)"' in why["Untold"]
    left_out = [(finding.path, finding.severity) for finding in report.findings if finding.code == "PS520"]
    assert left_out == [("models.py", "warning")]
    assert report.exit_status == 3  # a warning, and two errors


def test_each_carries_how_much_faster_it_is(migrated: tuple[Report, Path]) -> None:
    """Or why that is not told, as on a busy machine."""
    report, out = migrated
    compared = [model for model in report.models if model.speed]
    assert all(bool(model.speed) != bool(model.speed_unknown) for model in report.models if model.captured)
    assert report.scores()["faster"][1] == len(compared)
    for one in (one for model in compared for one in model.speed):
        assert one.ratio_low <= one.ratio <= one.ratio_high
        assert one.ratio == pytest.approx(one.eager_ms / one.graph_ms, rel=0.05)
    stored = json.loads((out / "headrace-report.json").read_text())
    assert [len(model["speed"]) for model in stored["models"]] == [len(model.speed) for model in report.models]


def test_arguments_come_from_calls_and_menus_or_are_asked_for(tmp_path: Path) -> None:
    surveyed = survey(repository(tmp_path))
    main = resolve(surveyed)
    found = {factory.name: result for factory, result in resolve_all(surveyed, main, None)}
    assert found.keys() == {"SMALL", "Menu", "Untold", "Dying", "Raising"}
    assert isinstance(found["Menu"], Resolved)
    assert "Menu(5)" in found["Menu"].recipe.source
    assert isinstance(found["Untold"], str)


def test_models_of_one_name_in_two_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    text = MODELS.partition("class Menu")[0]
    (tmp_path / "one" / "net.py").write_text(text)
    (tmp_path / "two" / "net.py").write_text(text.replace("Small(4)", "Small(8)"))
    surveyed = survey(tmp_path)
    found = [result for _, result in resolve_all(surveyed, None, None)]
    assert [item.factory for item in found if isinstance(item, Resolved)] == [
        f"{factory.path}:{factory.line}" for factory in surveyed.factories
    ]
    assert resolve(surveyed, model="two/net.py:small").recipe.directory == "two"


def test_a_script_that_builds_a_model_says_how(tmp_path: Path) -> None:
    repository(tmp_path)
    (tmp_path / "other.py").write_text(EVALUATE.replace("net = small()", "net = Untold(depth=9)"))
    surveyed = survey(tmp_path)
    found = {factory.name: result for factory, result in resolve_all(surveyed, None, None)}
    assert isinstance(found["Untold"], Resolved)
    assert found["Untold"].recipe.script == "other.py"
    report = headrace.migrate(tmp_path, all_models=True, check=True)
    assert "PS520" not in {finding.code for finding in report.findings}
    report = headrace.migrate(tmp_path, check=True)
    assert [item.path for item in report.findings if item.code == "PS011" and "other.py" in item.message] == ["evaluate.py"]


def test_several_models_by_name(tmp_path: Path) -> None:
    report = headrace.migrate(repository(tmp_path), model="SMALL, Untold(depth=3)", check=True)
    assert [model.name for model in report.models[:2]] == ["SMALL", "Untold"]
    assert all("not asked for" in (model.parity.why or "") for model in report.models[2:])
    with pytest.raises(AmbiguousError, match="nothing"):
        headrace.migrate(tmp_path, model="SMALL,nothing", check=True)
    with pytest.raises(ValueError, match="not both"):
        headrace.migrate(tmp_path, model="SMALL", all_models=True, check=True)


def test_commas_inside_of_calls_part_no_names() -> None:
    assert split_models("a, b,VGG('VGG16', [1, 2]),c") == ["a", "b", "VGG('VGG16', [1, 2])", "c"]


def test_names_are_unique_beside_their_companions() -> None:
    names = unique_names(["vgg", "VGG", "vgg", "a/b", "a_b", "x_decode", "x"])
    assert names == ["vgg", "VGG_2", "vgg_3", "a_b", "a_b_2", "x_decode", "x_2"]
