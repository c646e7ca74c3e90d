"""Every rule's own examples and those in more_examples.txt, run for all rules alike; a new rule needs no test file for these.

A rule holds what its page shows, the text file the rest: below "=== PS104 stays" a source that is left alone, below "changes"
one as a diff, and below "is remarked" one that only gets a remark. In a source of several files the line "# PATH:" stands
before each.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

from headrace.migrate.rewriting.rewrite import choose_rules, rewrite
from headrace.migrate.rewriting.rule import all_rules, diff
from headrace.migrate.survey.survey import survey

RULES = all_rules()
_, *MORE = re.split(
    r"^=== (PS\d+) (stays|changes|is remarked)\n", (Path(__file__).parent / "more_examples.txt").read_text(), flags=re.MULTILINE
)
MORE = [
    ({rule.code: rule for rule in RULES}[code], *rest) for code, *rest in zip(MORE[::3], MORE[1::3], MORE[2::3], strict=True)
]
VALID = [(rule, source) for rule in RULES for source in rule.VALID]
VALID += [(rule, text) for rule, what, text in MORE if what == "stays"]
INVALID = [(rule, *pair) for rule in RULES for pair in rule.INVALID]
INVALID += [(rule, *(diff(text) if what == "changes" else (text, None))) for rule, what, text in MORE if what != "stays"]


def files_of(source):
    """The texts of a source by their paths."""
    first, *rest = re.split(r"^# (\S+\.py):\n", source, flags=re.MULTILINE)
    return dict(zip(rest[::2], rest[1::2], strict=True)) if rest else {"script.py": first}


def run(tmp_path, source, rule):
    for path, text in files_of(source).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return rewrite(survey(tmp_path), select=[rule.code], unsafe=rule.safety == "unsafe")


@pytest.mark.parametrize(("rule", "source"), VALID, ids=lambda value: getattr(value, "code", ""))
def test_valid_is_left_alone(tmp_path, rule, source):
    assert [change for change in run(tmp_path, source, rule) if change.changed or change.findings] == []


@pytest.mark.parametrize(("rule", "source", "expected"), INVALID, ids=lambda value: getattr(value, "code", ""))
def test_invalid_is_remarked_and_fixed(tmp_path, rule, source, expected):
    (change,) = run(tmp_path, source, rule)
    assert {finding.code for finding in change.findings} == {rule.code}
    if expected is None:
        assert not change.changed
        return
    assert change.after.decode() == files_of(expected)[change.path]
    ast.parse(change.after)
    assert not any(item.changed for item in run(tmp_path, expected, rule)), "the second run must change nothing"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_has_a_page_and_examples(rule):
    for heading in ("What it does:", "Why:", "Example:", "Fix safety:"):
        assert heading in rule.__doc__
    assert rule.VALID
    assert rule.INVALID or sys.version_info >= (3, 12)  # some repair what only older versions refuse
    assert rule.safety in ("safe", "unsafe", "manual")


def test_more_examples_are_read():
    assert {what for _, what, _ in MORE} == {"stays", "changes", "is remarked"}


def test_codes_and_names_differ():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert [rule.code for rule in RULES] == sorted({rule.code for rule in RULES})


def test_select_and_ignore_take_prefixes():
    chosen = {rule.code for rule in choose_rules(["PS2"], ["PS203"])}
    assert chosen == {rule.code for rule in RULES if rule.code.startswith("PS2")} - {"PS203"}
    assert {"PS201", "PS202"} <= chosen
    with pytest.raises(ValueError, match="PS999"):
        choose_rules(["PS999"])
