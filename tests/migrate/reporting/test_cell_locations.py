"""The places that a report names are those of the repository as it came."""

import json

import pytest

import headrace

SOURCE = """\
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        x = Variable(x)
        return self.fc(self.conv(x).mean((2, 3)))


model = Net()
model.load_state_dict(torch.load("net.pth"))
model.eval()
with torch.no_grad():
    for images, labels in DataLoader(data):
        images = Variable(images)
        outputs = model(images)
        hits = (outputs.argmax(1) == labels).sum()
"""


@pytest.fixture(params=["main.py", "main.ipynb"])
def report(request, tmp_path):
    text = SOURCE
    if request.param == "main.ipynb":
        cells = [{"cell_type": "markdown", "metadata": {}, "source": "A net"}]
        cells += [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": part}
                  for part in SOURCE.split("\n\n\n")]  # fmt: skip
        text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    (tmp_path / request.param).write_text(text)
    return headrace.migrate(tmp_path, check=True)


def line_at(place):
    """What stands at "main.py:3" or "main.ipynb:cell 2:3"."""
    _, *cell, line = place.split(":")
    text = SOURCE if not cell else SOURCE.split("\n\n\n")[int(cell[0].removeprefix("cell ")) - 2]
    return text.splitlines()[int(line) - 1].strip()


def test_the_construction_is_where_it_was_before_the_repairs(report):
    assert {line_at(f"{step.path}:{step.line}") for step in report.chain} == {
        "class Net(nn.Module):", "model = Net()", 'model.load_state_dict(torch.load("net.pth"))'
    }  # fmt: skip
    assert [line_at(model.factory) for model in report.models] == ["class Net(nn.Module):"]


def test_findings_of_rules_and_of_later_stages_are_too(report):
    where = {finding.code: line_at(finding.where.rpartition(":")[0]) for finding in report.findings}
    assert where.pop("PS110") in ("from torch.autograd import Variable", "x = Variable(x)", "images = Variable(images)")
    assert where == {
        "PS013": "outputs = model(images)",
        "PS113": 'model.load_state_dict(torch.load("net.pth"))',
        "PS201": "outputs = model(images)",
    }
