"""Scripts that use several models: which of them are different models, and how one is chosen."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.survey.survey import survey

NETS = """
import copy
import torch
from torch import nn

class Small(nn.Module):
    def __init__(self, width=4, classes=3, deep=False):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))

class Large(Small):
    def __init__(self):
        super().__init__(64)
        self.more = nn.Linear(3, 3)

class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(self.inner(x))
"""


def resolved(folder: Path, script: str, **chosen: str) -> Resolved:
    (folder / "nets.py").write_text(NETS)
    (folder / "main.py").write_text("from nets import *\n" + textwrap.dedent(script))
    return resolve(survey(folder), **chosen)


EVALUATED = """
{made}
a.eval()
b.eval()
with torch.no_grad():
    for x, y in loader:
        print((a(x).argmax(1) == y).sum(), (b(x).argmax(1) == y).sum())
"""
TRAINED = """
{made}
optimizer = torch.optim.SGD({optimized}.parameters(), 0.1)
for x, y in loader:
    loss = loss_of({one}(x), {two}(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("a = Small()\nb = copy.deepcopy(a)", "a copy"),
        ("a = Small(8)\nb = Small(8)", "the same twice"),
        ("a = Small()\nb = Wrapped(a)", "one wraps the other"),
        ("a = Small(deep=False)\nb = Small(deep=True)", "a switch"),
        ("width = 4\na = Small(width)\nb = Small(4)", "maybe the same"),
        ("a = Small()\nb = torch.nn.DataParallel(a)", "in parallel"),
    ],
)
def test_one_model_after_all(tmp_path: Path, made: str, why: str) -> None:
    assert resolved(tmp_path, EVALUATED.format(made=made)).factory == "nets.py:6", why


def test_a_running_average_is_no_other_model(tmp_path: Path) -> None:
    script = EVALUATED.format(made="a = Small(8)\nb = Small(16)").replace("b(x)", "ema_net(x)").replace("b ", "ema_net ")
    assert resolved(tmp_path, script).loop.model == "a"


def test_a_part_is_no_other_model(tmp_path: Path) -> None:
    script = """
    encoder, head = Large(), Small()
    encoder.eval()
    head.eval()
    for x, y in loader:
        features = encoder(x)
        print(head(features).argmax(1) == y)
    """
    assert resolved(tmp_path, script).loop.model == "encoder"


def test_what_is_given_from_a_list_is_read_as_an_argument(tmp_path: Path) -> None:
    script = EVALUATED.format(made="a = Small()\nb = Wrapped(a)").replace("a(x)", "a(*x)")
    assert resolved(tmp_path, script).factory == "nets.py:6"


@pytest.mark.parametrize(("one", "two"), [("teacher", "student"), ("student", "teacher"), ("big", "little")])
def test_the_model_that_is_trained_is_meant(tmp_path: Path, one: str, two: str) -> None:
    learner = next(name for name in (one, two) if name in ("student", "little"))
    made = "\n".join(f"{name} = {'Small(4)' if name == learner else 'Large()'}" for name in (one, two))
    found = resolved(tmp_path, TRAINED.format(made=made, optimized=learner, one=one, two=two))
    assert found.loop.model == learner
    assert found.factory == "nets.py:6"


def test_of_different_models_the_last_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    for one, two in [("Small(4)", "Small(16)"), ("Small(width=4)", "Small(width=16)"), ("Small()", "Large()")]:
        found = resolved(tmp_path, EVALUATED.format(made=f"a = {one}\nb = {two}"))
        assert found.loop.model == "b"
        [remark] = [item for item in found.findings if item.code == "PS011"]
        assert f"b is taken for the model, {two}" in remark.message
        assert f"others: a is {one} (--model" in remark.message
        assert remark.line == found.loop.call_line


def test_a_model_is_chosen_by_its_variable(tmp_path: Path) -> None:
    script = EVALUATED.format(made="a = Small(4)\na.load_state_dict(torch.load('a.pth'))\nb = Small(16)")
    for name, width in (("a", "Small(4)"), ("b", "Small(16)")):
        found = resolved(tmp_path, script, model=name)
        assert found.loop.model == name
        assert width in found.recipe.source
        assert found.name == "Small"
    assert "load_state_dict" in resolved(tmp_path, script, model="a").recipe.source


def test_a_model_is_chosen_by_its_class(tmp_path: Path) -> None:
    script = EVALUATED.format(made="a = Small()\nb = Large()\nb.load_state_dict(torch.load('large.pth'))")
    found = resolved(tmp_path, script, model="Large")
    assert (found.loop.model, found.factory) == ("b", "nets.py:15")
    assert "large.pth" in found.recipe.source


def test_an_attribute_is_chosen_by_its_last_name(tmp_path: Path) -> None:
    script = """
    class Runner:
        def __init__(self):
            self.first = Small()
            self.second = Large()

        def evaluate(self, loader):
            self.first.eval()
            self.second.eval()
            for x, y in loader:
                print(self.first(x).argmax(1) == y, self.second(x).argmax(1) == y)

    Runner().evaluate(loader)
    """
    assert resolved(tmp_path, script).loop.model == "self.second"
    assert resolved(tmp_path, script, model="first").factory == "nets.py:6"
    assert resolved(tmp_path, script, model="second").factory == "nets.py:15"
    assert resolved(tmp_path, script, model="self.second").factory == "nets.py:15"


def test_a_factory_of_that_name_comes_before_a_variable(tmp_path: Path) -> None:
    script = EVALUATED.format(made="a = Small(4)\nb = Large()")
    (tmp_path / "more.py").write_text("from nets import Small\n\ndef a():\n    return Small(32)\n")
    found = resolved(tmp_path, script, model="a")
    assert found.factory == "more.py:3"
