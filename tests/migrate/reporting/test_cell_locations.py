"""The places that a report names are those of the repository as it came."""

import json

import pytest

import headrace
from headrace.migrate.proving.rehearsal_protocol import OF_MIGRATED
from headrace.migrate.reporting.cell_locations import locate_in_cells
from headrace.migrate.reporting.report import Report, ScriptReport
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.survey.survey import survey

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


def notebook(*cells):
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_lines_at_which_a_notebook_ran_are_those_of_its_cells(tmp_path):
    (tmp_path / "my net.ipynb").write_text(notebook("import torch", "a = 1\nb = 2"))
    (tmp_path / "net.ipynb.cells.py").write_text("a = 1\n" * 9)
    after = notebook("import torch\nimport headrace", "a = 1\nb = 3").encode()
    change = Change(path="my net.ipynb", before=(tmp_path / "my net.ipynb").read_bytes(), after=after, rules=[], findings=[])
    ran = [at for at in range(1, 9) if survey(tmp_path).files[0].notebook.locate(at) == (2, 2)]
    place = f"my net.ipynb.cells.py:{ran[0]}"
    script = ScriptReport(path="my net.ipynb", roles=[], why=f"KeyError ({place})", up_to=place)
    script.standins = [{"edge": "data", "what": "a.jpg", "where": place}, {"edge": "time", "what": "one epoch", "where": None}]
    other = ScriptReport(path="my net.ipynb", roles=[], why=f"{OF_MIGRATED} KeyError (my net.ipynb.cells.py:{ran[0] + 1})")
    own = ScriptReport(path="net.py", roles=[], why="KeyError (other.ipynb.cells.py:5), KeyError (net.ipynb.cells.py:5)")
    report = Report(repository="r", scripts=[script, other, own], changes=[change])
    locate_in_cells(report, survey(tmp_path))
    assert (script.why, script.up_to) == ("KeyError (my net.ipynb:cell 2:2)", "my net.ipynb:cell 2:2")
    assert [item["where"] for item in script.standins] == ["my net.ipynb:cell 2:2", None]
    assert other.why == f"{OF_MIGRATED} KeyError (my net.ipynb:cell 2:2)"
    assert own.why == "KeyError (other.ipynb.cells.py:5), KeyError (net.ipynb.cells.py:5)"
