"""A script whose settings name the code that calls the model is compared as any other, once a run has shown what it calls."""

from dataclasses import replace

import pytest

from headrace.migrate.api import migrate
from headrace.migrate.reading.recipe import LiveModel, Recipe
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.rewriting.rewrite import rewrite_all, rewritten_scripts
from headrace.migrate.rewriting.rule import all_rules
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.reached_by_run import unread_classes, with_reached
from headrace.migrate.survey.survey import runnable, survey

SETTINGS = '{"work": "engine.work", "classes": 4}\n'
ENGINE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.fc = nn.Linear(4, classes)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


class Wide(Net):
    def __init__(self, classes):
        super().__init__(classes)
        self.conv = nn.Conv2d(3, 4, 5)


def work(classes):
    model = Net(classes)
    model.eval()
    rows = [(torch.rand(4, 3, 16, 16), torch.arange(4)) for _ in range(3)]
    correct = 0
    with torch.no_grad():
        for images, labels in rows:
            outputs = model(images)
            correct += (outputs.argmax(1) == labels).sum().item()
    print("correct", correct)
"""
TRAIN = """
import importlib
import json

import torch


def main():
    torch.manual_seed(0)
    settings = json.load(open("settings.json"))
    module, _, name = settings.pop("work").rpartition(".")
    getattr(importlib.import_module(module), name)(**settings)


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "thing"
    root.mkdir()
    for name, text in {"settings.json": SETTINGS, "engine.py": ENGINE, "train.py": TRAIN}.items():
        (root / name).write_text(text)
    return root


@pytest.mark.usefixtures("warm_sandbox")
def test_a_script_whose_settings_name_its_code_is_run_before_and_after(repository, tmp_path):
    report = migrate(repository, out=tmp_path / "out", random_weights=True, planned=False)
    (script,) = report.scripts
    assert (script.path, script.rewritten, script.executed) == ("train.py", True, "passed"), script
    assert script.rules
    assert report.agreements
    assert not [finding for finding in report.findings if finding.code == "PS408"]


def test_only_what_a_run_has_shown_is_added(repository, tmp_path):
    (repository / "other.py").write_text("from engine import work\n\nwork(4)\n")
    rewriting = rewrite_all(survey(repository), rules=all_rules())
    surveyed, changes = rewriting.survey, rewriting.changes
    migration = Migration(
        scratch=tmp_path,
        surveyed=surveyed,
        options=Options(),
        stages=Stages(None),
        rewritten=rewritten_scripts(surveyed, changes),
    )
    assert [script.path for script in migration.surveyed.scripts] == ["other.py"]
    recipe = Recipe(root=str(repository), script="train.py", source="", expression="")
    scripts = {script.path: script for script in (*runnable(surveyed), *surveyed.scripts)}
    (loop,) = migration.surveyed.loops
    for script, at in ((None, loop), (scripts["train.py"], None), (scripts["other.py"], loop)):
        found = Resolved(name="net", recipe=recipe, script=script, loop=at)
        assert with_reached(migration, found, changes) == (migration, found)
    migration, found = with_reached(
        migration, Resolved(name="net", recipe=recipe, script=scripts["train.py"], loop=loop), changes
    )
    assert found.script in migration.surveyed.scripts
    assert (found.script.path, found.script.loops, found.script.roles) == ("train.py", (loop,), ("evaluate",))
    assert set(migration.rewritten) == {"other.py", "train.py"}


PARTS = """
import torch
from torch import nn


class Joined(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return self.parts(x)


class Other(nn.Module):
    def forward(self, x):
        return x


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(1) == labels).sum().item()
    return correct


parts = [nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)]
model = Joined(parts)
print(evaluate(model, [(torch.rand(4, 3, 16, 16), torch.arange(4))]))
"""


def test_a_network_that_is_given_its_parts_is_a_classifier_once_a_run_has_shown_it(tmp_path):
    (tmp_path / "joined.py").write_text(PARTS)
    read = rewrite_all(survey(tmp_path), rules=all_rules())
    assert not read.survey.scripts
    live = LiveModel(class_name="Joined", ordinal=0, evaluating=True, row=(3, 16, 16))
    recipe = Recipe(root=str(tmp_path), script="joined.py", source="", expression="")
    assert unread_classes(read.survey, Resolved(name="net", recipe=recipe)) == frozenset()
    shown = unread_classes(read.survey, Resolved(name="net", recipe=replace(recipe, live=live)))
    assert shown == {"Joined"}
    known = rewrite_all(survey(tmp_path), rules=all_rules(), seen=shown)
    assert [(script.path, script.roles) for script in known.survey.scripts] == [("joined.py", ("evaluate",))]
    assert [factory.name for factory in known.survey.factories] == ["Joined"]
    (change,) = [change for change in known.changes if change.changed]
    assert b"import headrace" in change.after
    assert unread_classes(known.survey, Resolved(name="net", recipe=replace(recipe, live=live))) == frozenset()
    elsewhere = replace(recipe, live=replace(live, class_name="ResNet"))  # a library's
    assert unread_classes(read.survey, Resolved(name="net", recipe=elsewhere)) == frozenset()
