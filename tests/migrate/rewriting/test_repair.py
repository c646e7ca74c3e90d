"""Repairs: in memory, before the survey, at the places where the original has them, and lossless."""

import ast

import pytest

from headrace.migrate.rewriting.repair import draft_edits
from headrace.migrate.rewriting.rewrite import choose_rules, rewrite, rewrite_all
from headrace.migrate.survey.survey import survey

OLD_SCRIPT = '''\
# -*- coding: utf-8 -*-
"""Évaluate."""
import torch
from torch.autograd import Variable


def validate(model, loader):
    model.eval()
    for images, target in loader:
        target = target.cuda(async=True)
        images = Variable(images, volatile=True)
        print "é", images.size(0), target.size(0)   # print this
        output = model(images)
'''


def repaired(tmp_path, source, ignore=()):
    (tmp_path / "a.py").write_text(source)
    return rewrite_all(survey(tmp_path), rules=choose_rules((), ignore))


def test_what_does_not_parse_is_repaired_and_then_surveyed_and_rewritten(tmp_path):
    found = repaired(tmp_path, OLD_SCRIPT)
    assert [loop.model for loop in found.survey.loops] == ["model"]
    assert not found.survey.errors
    (change,) = found.changes
    assert change.before == OLD_SCRIPT.encode()
    assert set(change.rules) >= {"PS101", "PS102", "PS110", "PS201"}
    text = change.after.decode()
    ast.parse(text)
    assert 'print("é", images.size(0), target.size(0))   # print this' in text
    assert "Variable" not in text
    assert "@torch.no_grad()\ndef validate" in text
    assert "output = model_graph(images)" in text or "output = graph(images)" in text


def test_findings_stand_where_the_original_has_them(tmp_path):
    (change,) = repaired(tmp_path, OLD_SCRIPT).changes
    lines = OLD_SCRIPT.splitlines()
    places = {finding.code: (finding.line, finding.column) for finding in change.findings}
    for code, text in {"PS101": "async", "PS102": "print", "PS201": "model(images)"}.items():
        line, column = places[code]
        assert lines[line - 1][column:].startswith(text), code


def test_a_second_run_changes_nothing(tmp_path):
    (change,) = repaired(tmp_path, OLD_SCRIPT).changes
    (tmp_path / "a.py").write_bytes(change.after)
    again = rewrite_all(survey(tmp_path))
    assert not again.repairs
    assert not any(item.changed for item in again.changes)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_bytes_around_a_repair_stay(tmp_path, ending, mark):
    source = "import torch  # é\n\n\ndef f(x):\n\tx = x.cuda( async = True )  # async=True\n\ts = 'async=True'\n\treturn x, s"
    before = mark + source.replace("\n", ending).encode()
    (tmp_path / "a.py").write_bytes(before)
    (change,) = rewrite(survey(tmp_path))
    assert change.after == before.replace(b"( async =", b"( non_blocking =")


def test_a_file_that_no_repair_makes_parse_stays_and_says_so(tmp_path):
    source = "import torch\nx = torch.ones(2).cuda(async=True)\nif x\n    pass\n"
    found = repaired(tmp_path, source)
    assert {finding.code for finding in found.survey.errors} == {"PS001"}
    (change,) = found.changes
    assert not change.changed
    assert {(finding.code, finding.fix) for finding in change.findings} == {("PS101", "manual")}


def test_a_repair_that_is_not_selected_is_not_made(tmp_path):
    assert not repaired(tmp_path, OLD_SCRIPT, ignore=["PS101"]).repairs


def test_a_rule_that_breaks_stops_no_other(tmp_path, monkeypatch):
    from headrace.migrate.rules.ps110_variable import Variable

    def fail(self, context):
        raise RuntimeError("no")

    monkeypatch.setattr(Variable, "check", fail)
    (change,) = repaired(tmp_path, "import torch\nfrom torch._six import inf\n").changes
    assert change.rules == ["PS105"]
    assert [finding.code for finding in change.findings if finding.severity == "error" and finding.fix == "manual"] == ["PS000"]


def test_overlapping_fixes_wait_for_the_next_pass(tmp_path):
    source = (
        "import numpy as np\nimport torch\nfrom torch.autograd import Variable\n\n"
        "x = Variable(torch.ones(2).type(Variable(y)))\nz = Variable(torch.zeros(int(np.int(2))))\n"
    )
    (change,) = repaired(tmp_path, source).changes
    assert change.after.decode() == (
        "import numpy as np\nimport torch\n\nx = torch.ones(2).type(y)\nz = torch.zeros(int(int(2)))\n"
    )


def test_an_import_that_others_take_from_the_file_stays(tmp_path):
    (tmp_path / "utils.py").write_text("import torch\nfrom torch.autograd import Variable\n\nx = Variable(torch.ones(2))\n")
    (tmp_path / "main.py").write_text("import torch\nfrom utils import *\n\ny = Variable(x)\n")
    by_path = {change.path: change.after.decode() for change in rewrite(survey(tmp_path))}
    assert "import Variable" in by_path["utils.py"]
    assert "x = torch.ones(2)" in by_path["utils.py"]


def test_an_insertion_inside_of_a_replaced_span_overlaps():
    from headrace.migrate.reading.edits import Edit
    from headrace.migrate.reading.finding import Finding
    from headrace.migrate.rewriting.rule import Fix

    finding = Finding("a.py", 1, 0, "PS999", "", "note", "safe")
    draft = draft_edits(
        [Fix(finding, (Edit(0, 9, "x"),)), Fix(finding, (Edit(4, 4, "y"),)), Fix(finding, (Edit(9, 9, "z"),))], False
    )
    assert draft.edits == [Edit(0, 9, "x"), Edit(9, 9, "z")]
