"""Whole migrations of repositories whose code stands in notebooks."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

import headrace
from headrace.errors import NothingToMigrateError
from headrace.migrate.reading.notebooks.notebook import cell_sources
from headrace.migrate.reporting.report import Report
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.rewriting.rewrite import choose_rules, rewrite, rewrite_all
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.usefixtures("warm_sandbox")

NET = """\
class Net(nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, 2, 1)
        self.norm = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
"""
EVALUATION = """\
correct = 0
with torch.no_grad():
    for images, targets in loader:
        outputs = model(images)
        correct += (outputs.argmax(1) == targets).sum().item()
print("correct", correct)
display(correct)
"""
CELLS = [
    "# A small network, über alles",
    "%matplotlib inline\nimport torch\nfrom torch import nn",
    "!pip install torch",
    NET,
    "WIDTH, CLASSES = 4, 5\ntorch.manual_seed(0)\nmodel = Net(WIDTH, CLASSES)\nmodel.eval()",
    "import asyncio\nawait asyncio.sleep(0)\nloader = [(torch.rand(6, 3, 16, 16), torch.arange(6) % 5) for _ in range(2)]",
    "%%time\n" + EVALUATION,
]
LIGHTNING = """\
class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(4, 5)

    def training_step(self, batch, index):
        images, targets = batch
        return nn.functional.cross_entropy(self.net(images), targets)

    def validation_step(self, batch, index):
        images, targets = batch
        logits = self.net(images)
        self.log("accuracy", (logits.argmax(1) == targets).float().mean())
"""


def write(path: Path, cells: list[str], *, old: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = []
    for source in cells:
        code = not source.startswith("# ")
        text: object = source.splitlines(keepends=True)
        cell: dict = {"cell_type": "code" if code else "markdown", "metadata": {}, "input" if code and old else "source": text}
        if code:
            output = {"name": "stdout", "output_type": "stream", "text": ["Größe 1\n"]}
            cell |= {"collapsed": True, "language": "python", "prompt_number": 1} if old else {"execution_count": 1}
            cell["outputs"] = [] if old else [output]
        made.append(cell)
    data = (
        {"worksheets": [{"cells": made, "metadata": {}}], "metadata": {"name": ""}} if old else {"cells": made, "metadata": {}}
    )
    data |= {"nbformat": 3 if old else 4, "nbformat_minor": 0}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def migrated(once: Callable[..., Any]) -> tuple[Report, Path, Path]:
    return once("notebook-migrated", _migrated)


def _migrated(folder: Path) -> tuple[Report, Path, Path]:
    root, out = folder / "repository", folder / "out"
    root.mkdir()
    write(root / "evaluate.ipynb", CELLS)
    report = headrace.migrate(root, out=out, random_weights=True, precision="fp32", tuning_seconds=0.2)
    return report, root, out


def test_a_notebook_is_rewritten_run_proved_and_served(migrated: tuple[Report, Path, Path]) -> None:
    report, _, out = migrated
    (model,) = report.models
    assert (model.name, model.factory, model.input, model.classes) == ("Net", "evaluate.ipynb:cell 4:1", [3, 16, 16], 5)
    assert (model.parity.status, model.served) == ("passed", True), report.findings
    (script,) = report.scripts
    assert (script.path, script.rewritten, script.executed, script.why) == ("evaluate.ipynb", True, "passed", None)
    assert [(step.path, step.line) for step in report.chain][-2] == ("evaluate.ipynb:cell 4", 1)
    (applied,) = [finding for finding in report.findings if finding.code == "PS201"]
    assert str(applied).startswith("evaluate.ipynb:cell 7:5:18: PS201 ")
    assert applied.to_json()["cell"] == 7
    assert applied.from_json(applied.to_json()) == applied
    nbformat.validate(nbformat.read(out / "evaluate.ipynb", as_version=nbformat.NO_CONVERT))


def test_only_the_edited_lines_of_its_json_differ(migrated: tuple[Report, Path, Path]) -> None:
    _, root, out = migrated
    before = (root / "evaluate.ipynb").read_text(encoding="utf-8").splitlines()
    after = (out / "evaluate.ipynb").read_text(encoding="utf-8").splitlines()
    assert [line for line in before if line not in after] == ['    "model.eval()"', '    "        outputs = model(images)\\n",']
    assert [line.strip() for line in after if line not in before] == [
        '"import headrace\\n",',
        '"model.eval()\\n",',
        '"graph = headrace.compile(model)"',
        '"        outputs = graph(images)\\n",',
    ]


def test_the_diff_shows_cells(migrated: tuple[Report, Path, Path]) -> None:
    diff = migrated[0].diff
    assert "--- a/evaluate.ipynb:cell 5\n+++ b/evaluate.ipynb:cell 5\n" in diff
    assert "+graph = headrace.compile(model)\n" in diff
    assert "No newline" not in diff
    assert '"' not in diff.replace('print("correct", correct)', "")


def test_a_second_run_finds_nothing(migrated: tuple[Report, Path, Path]) -> None:
    again = headrace.migrate(migrated[2], check=True)
    assert (again.diff, again.would_change) == ("", False)


@pytest.mark.parametrize("cells", [CELLS, [*CELLS[:4], LIGHTNING.join(["import pytorch_lightning as pl\n", ""]), CELLS[4]]])
@pytest.mark.parametrize("old", [False, True])
def test_every_rewrite_leaves_a_valid_notebook(tmp_path: Path, old: bool, cells: list[str]) -> None:
    path = write(tmp_path / "a.ipynb", cells, old=old)
    surveyed = survey(tmp_path)
    assert [factory.name for factory in surveyed.factories] == ["Net"]
    for change in rewrite(surveyed, unsafe=True):
        assert change.path == path.name
        nbformat.validate(nbformat.reads(change.after.decode(), as_version=nbformat.NO_CONVERT))
        changed = cell_sources(change.after.decode())
        assert changed.keys() == cell_sources(change.before.decode()).keys()
        plain = ["\n".join(line for line in source.split("\n") if line[:1] not in "%!") for source in changed.values()]
        ast.parse("\n".join(plain))
    bodies = [surveyed.file(path.name).encode(surveyed.file(path.name).text or ""), path.read_bytes()]
    assert bodies[0] == bodies[1]


def test_a_notebook_s_model_without_a_loop_is_a_slice_of_its_cells(tmp_path: Path) -> None:
    write(
        tmp_path / "net.ipynb",
        [*CELLS[:3], "WIDTH = 6", NET.replace("self, width, num_classes", "self, width=WIDTH, num_classes=3")],
    )
    resolved = resolve(survey(tmp_path))
    assert resolved.recipe.script == "net.ipynb"
    namespace: dict = {}
    exec(resolved.recipe.source, namespace)
    model = eval(resolved.recipe.expression, namespace)
    assert model.conv.out_channels == 6
    assert "pip" not in resolved.recipe.source


def test_scripts_come_before_notebooks_and_models_choose_notebooks(tmp_path: Path) -> None:
    write(tmp_path / "one.ipynb", CELLS)
    write(tmp_path / "two.ipynb", [source.replace("Net", "Other") for source in CELLS])
    assert resolve(survey(tmp_path)).recipe.script == "one.ipynb"
    assert resolve(survey(tmp_path), model="Other").recipe.script == "two.ipynb"
    assert resolve(survey(tmp_path), entry="one.ipynb").factory_name == "Net"
    script = "\n".join(line for source in CELLS[1:] for line in source.split("\n") if line[:1] not in ("%", "!"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "evaluate.py").write_text(script.replace("Net", "Third"))
    assert resolve(survey(tmp_path)).recipe.script == "src/evaluate.py"


def test_nothing_invented_where_a_notebook_is_broken(tmp_path: Path) -> None:
    (tmp_path / "bad.ipynb").write_text("{")
    with pytest.raises(NothingToMigrateError, match="none of the 1"):
        headrace.migrate(tmp_path)
    write(tmp_path / "good.ipynb", [*CELLS, "def half("])
    report = headrace.migrate(tmp_path, check=True)
    found = [(item.path, item.cell, item.line, item.code, item.severity) for item in report.findings if item.code < "PS010"]
    assert found == [("bad.ipynb", 0, 1, "PS002", "error"), ("good.ipynb", 8, 1, "PS001", "warning")]
    assert "+graph = headrace.compile(model)" in report.diff


OLD_CELLS = [
    *CELLS[:5],
    "# Moved to the GPU where there is one",
    "%matplotlib inline\nprint 'batches of', 6\ndef move(x):\n    return x.cuda(async=True) if CUDA else x\nCUDA = False\n!ls",
    "import asyncio\nawait asyncio.sleep(0)\nloader = [(torch.rand(6, 3, 16, 16), torch.arange(6) % 5) for _ in range(2)]",
    EVALUATION.replace('print("correct", correct)', "print 'correct', correct, 'of', 12").replace(
        "model(images)", "model(move(images))"
    ),
    "print 'half',\ndef half(:",
]


@pytest.mark.parametrize("old", [False, True])
def test_cells_of_python_2_are_repaired_and_then_rewritten(tmp_path: Path, old: bool) -> None:
    path = write(tmp_path / "a.ipynb", OLD_CELLS, old=old)
    before = path.read_bytes()
    report = headrace.migrate(tmp_path, check=True)
    found = [(item.code, item.cell, item.line, item.fix) for item in report.findings]
    assert sorted(item for item in found if item[0].startswith("PS1")) == [
        ("PS101", 7, 4, "applied"), ("PS102", 7, 2, "applied"), ("PS102", 9, 6, "applied"),
    ]  # fmt: skip
    assert [item[:2] for item in found if item[0] == "PS001"] == [("PS001", 10)]
    assert [(item[0], item[1]) for item in found if item[0] == "PS201"] == [("PS201", 9)]
    assert path.read_bytes() == before
    (change,) = report.changes
    cells = cell_sources(change.after.decode())
    assert cells[7] == OLD_CELLS[6].replace("print 'batches of', 6", "print('batches of', 6)").replace(
        "async=", "non_blocking="
    )
    assert "print('correct', correct, 'of', 12)" in cells[9]
    assert "graph(move(images))" in cells[9]
    assert cells[10] == OLD_CELLS[9]
    path.write_bytes(change.after)
    assert headrace.migrate(tmp_path, check=True).diff == ""


def test_only_the_repaired_lines_of_the_json_differ(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", ["import torch", "x = torch.ones(2)\n%cd ..\nprint x,\nprint >>log, 'done'  # ü\ny = x"])
    (change,) = rewrite_all(survey(tmp_path)).changes
    before, after = path.read_text().splitlines(), change.after.decode().splitlines()
    assert [line.strip() for line in after if line not in before] == [
        '"print(x, end=\\" \\")\\n",',
        "\"print('done', file=log)  # ü\\n\",",
    ]
    assert len(before) == len(after)


def test_a_repair_that_is_not_wanted_leaves_the_cell(tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb", OLD_CELLS)
    rewritten = rewrite_all(survey(tmp_path), rules=choose_rules((), ("PS102",)))
    assert "PS102" not in {code for change in rewritten.changes for code in change.rules}
    assert [item.code for item in rewritten.survey.findings if item.severity == "warning" and item.code == "PS001"] == [
        "PS001"
    ] * 3
