"""A user's own rules: loaded only on request, tested by their own examples, and part of a migration like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace.errors import MigrateError
from headrace.migrate.rewriting.plugins import load_all, load_rules, rules_of
from headrace.migrate.rewriting.selftest import self_test

RULE = '''
import ast

from headrace.migrate.reading.edits import Edit
from headrace.migrate.reading.finding import Finding
from headrace.migrate.rewriting.rule import Fix, Rule

_INVALID = """\\
import torch

model = torch.load("m.pt")
model.eval()
for images, labels in loader:
    outputs = model(images.half())
"""


class NoHalf(Rule):
    """What it does: feeds the model float32.

    Why: this model was trained in it.

    Example: `model(x.half())` becomes `model(x)`.

    Fix safety: safe.
    """

    code = "ME001"
    name = "no-half"
    safety = "safe"
    VALID = (_INVALID.replace(".half()", ""),)
    INVALID = ((_INVALID, _INVALID.replace(".half()", "")),)

    def check(self, context):
        for site in context.sites:
            given = site.call.args[0] if site.call.args else None
            if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "half":
                start, end = context.positions.span(given)
                kept = context.positions.span(given.func.value)
                place = (site.fact.path, given.lineno, given.col_offset)
                finding = Finding(*place, self.code, "half precision", "warning", "safe")
                yield Fix(finding, (Edit(kept[1], end, ""),))
'''
MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        return self.fc(x.flatten(1))


model = Net()
model.eval()
loader = [(torch.rand(2, 3, 2, 2), torch.zeros(2))]
for images, labels in loader:
    outputs = model(images.half())
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "my_rules.py"
    path.write_text(RULE)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "main.py").write_text(MODEL)
    return root


def test_a_rule_passes_its_own_examples(plugin: Path) -> None:
    (rule,) = load_rules(plugin)
    verdicts = list(self_test(rule))
    assert [verdict.example for verdict in verdicts] == ["page", "VALID 1", "INVALID 1"]
    assert [verdict.why for verdict in verdicts] == [None, None, None]


@pytest.mark.parametrize(
    ("old", "new", "example", "why"),
    [
        ("Why:", "Because:", "page", "lacks Why:"),
        ('safety = "safe"', 'safety = "sure"', "page", "'sure'"),
        ("INVALID = ((_INVALID, ", "INVALID = (); X = ((_INVALID, ", "page", "an example in VALID and one in INVALID"),
        ('attr == "half"', 'attr == "bfloat16"', "INVALID 1", "remarks nothing"),
        ('_INVALID.replace(".half()", "")),)', '_INVALID.replace("half", "float")),)', "INVALID 1", "something else"),
        ('_INVALID.replace(".half()", "")),)', "None),)", "INVALID 1", "must only be remarked"),
        ('VALID = (_INVALID.replace(".half()", ""),)', "VALID = (_INVALID,)", "VALID 1", "must stay as it is"),
        ('Edit(kept[1], end, "")', "Edit(kept[1], kept[1], '.half()')", "INVALID 1", "something else"),
        ('VALID = (_INVALID.replace(".half()", ""),)', 'VALID = ("import torch\\ndef f(:",)', "VALID 1", "does not parse"),
        ('self.code, "half', '"ME002", "half', "INVALID 1", "ME002"),
        ("yield Fix", "raise KeyError(3); yield Fix", "INVALID 1", "KeyError"),
    ],
)
def test_examples_that_do_not_hold_are_told(plugin: Path, old: str, new: str, example: str, why: str) -> None:
    assert old in RULE
    plugin.write_text(RULE.replace(old, new))
    (rule,) = load_rules(plugin)
    told = {verdict.example: verdict.why for verdict in self_test(rule) if verdict.why}
    assert why in told[example], told


def test_a_rule_that_never_comes_to_rest_is_told(plugin: Path) -> None:
    text = RULE.replace('Edit(kept[1], end, "")', 'Edit(kept[1], kept[1], ".half()")')
    text = text.replace('_INVALID.replace(".half()", "")),)', '_INVALID.replace(".half()", ".half().half()")),)')
    plugin.write_text(text)
    told = {verdict.example: verdict.why for verdict in self_test(load_rules(plugin)[0])}
    assert "a second run must change nothing" in (told["INVALID 1"] or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("import nowhere_to_be_found", "does not import: ModuleNotFoundError"),
        ("x = 1", "holds no rule"),
        (RULE.replace("ME001", "PS201"), "PS201 of 'no-half' is taken by 'evaluation-loop'"),
        (RULE.replace("ME001", "PS999"), "none of your own"),
        (RULE.replace('    name = "no-half"\n', ""), "NoHalf lacks name"),
        (RULE.replace("def check", "def inspect"), "NoHalf lacks check"),
        (RULE + RULE.replace("NoHalf", "Other"), "taken by 'no-half'"),
    ],
)
def test_files_that_hold_no_good_rule_are_refused(plugin: Path, text: str | None, message: str) -> None:
    plugin.unlink() if text is None else plugin.write_text(text)
    with pytest.raises(MigrateError, match=message):
        load_rules(plugin)


def test_two_files_with_one_code(plugin: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(RULE)
    with pytest.raises(MigrateError, match="taken by 'no-half'"):
        load_all([plugin, other])


def test_rules_given_by_the_user_take_part(plugin: Path, root: Path) -> None:
    report = headrace.migrate(root, check=True, rules=[plugin], select=["ME"])
    assert {finding.code for finding in report.findings if finding.fix != "manual"} == {"ME001"}
    assert "+    outputs = model(images)" in report.diff
    both = headrace.migrate(root, check=True, rules=[plugin])
    assert {"ME001", "PS201"} <= {finding.code for finding in both.findings}


def test_rules_that_the_repository_names_run_only_when_trusted(root: Path, tmp_path: Path) -> None:
    witness = tmp_path / "it-ran"
    (root / "my_rules.py").write_text(RULE + f"\nopen({str(witness)!r}, 'w').close()\n")
    (root / "pyproject.toml").write_text('[tool.headrace]\nrules = ["my_rules.py"]\nselect = ["ME001"]\n')
    report = headrace.migrate(root, check=True)
    assert not witness.exists()
    assert {finding.code for finding in report.findings} >= {"PS020", "PS021"}
    assert report.exit_status & 1
    report = headrace.migrate(root, check=True, trust_rules=True)
    assert witness.exists()
    codes = {finding.code for finding in report.findings}
    assert "ME001" in codes
    assert not codes & {"PS020", "PS021", "PS201"}


def test_named_rules_stay_inside_the_repository(root: Path, plugin: Path) -> None:
    with pytest.raises(MigrateError, match="outside the repository"):
        rules_of(root.resolve(), ["../my_rules.py"], trusted=True)
    assert rules_of(root, [], trusted=False) == ([], [])


def test_the_rule_in_the_documentation_passes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrate.md").read_text()
    path = tmp_path / "documented.py"
    path.write_text(page.partition('```python title="my_rules.py"\n')[2].partition("```")[0])
    (rule,) = load_rules(path)
    assert [verdict.why for verdict in self_test(rule)] == [None, None, None]
