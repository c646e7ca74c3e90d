"""A rule's own examples, run: VALID must stay as they are, INVALID must become what the rule says, and stay that way."""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from ...scratch import ScratchFolder
from ..survey.survey import survey
from .rewrite import Change, rewrite
from .rule import Rule

PARTS = ("What it does:", "Why:", "Example:", "Fix safety:")


@dataclass(frozen=True)
class Verdict:
    """One example of a rule, e.g. "INVALID 2"; `why` is None when it passed."""

    code: str
    example: str
    why: str | None = None


def self_test(rule: Rule) -> Iterator[Verdict]:
    """A verdict on the rule's page and on each of its examples."""
    yield Verdict(rule.code, "page", _page(rule))
    for number, source in enumerate(rule.VALID, 1):
        yield Verdict(rule.code, f"VALID {number}", _valid(rule, source))
    for number, (source, expected) in enumerate(rule.INVALID, 1):
        yield Verdict(rule.code, f"INVALID {number}", _invalid(rule, source, expected))


def _page(rule: Rule) -> str | None:
    missing = [part for part in PARTS if part not in (rule.__doc__ or "")]
    if missing:
        return f"the docstring lacks {' '.join(missing)}"
    if rule.safety not in ("safe", "unsafe", "manual"):
        return f'safety is {rule.safety!r}; it must be "safe", "unsafe" or "manual"'
    if not rule.VALID or not rule.INVALID:
        return "it needs an example in VALID and one in INVALID"
    return None


def _valid(rule: Rule, source: str) -> str | None:
    changes = _run(rule, source)
    if isinstance(changes, str):
        return changes
    for change in changes:
        if change.changed:
            return f"must stay as it is, but was changed:\n{_diff(source, change.after.decode())}"
        if change.findings:
            return f"must be left alone, but was remarked: {change.findings[0]}"
    return None


def _invalid(rule: Rule, source: str, expected: str | None) -> str | None:
    changes = _run(rule, source)
    if isinstance(changes, str):
        return changes
    findings = [finding for change in changes for finding in change.findings]
    if not findings:
        return "the rule remarks nothing in this example"
    foreign = {finding.code for finding in findings} - {rule.code}
    if foreign:
        return next(f"remarked as {finding}" for finding in findings if finding.code in foreign)
    after = next((change.after.decode() for change in changes if change.changed), None)
    if expected is None:
        return None if after is None else f"must only be remarked, but was changed:\n{_diff(source, after)}"
    if after != expected:
        return f"became something else than expected:\n{_diff(expected, after if after is not None else source)}"
    ast.parse(after)
    again = _run(rule, after)
    if isinstance(again, str):
        return again
    twice = next((change.after.decode() for change in again if change.changed), None)
    return None if twice is None else f"a second run must change nothing, but:\n{_diff(after, twice)}"


def _run(rule: Rule, source: str) -> list[Change] | str:
    with ScratchFolder() as folder:
        (folder / "script.py").write_text(source, encoding="utf-8", newline="")
        surveyed = survey(folder)
        if surveyed.errors:
            return f"the example does not parse: {surveyed.errors[0]}"
        return rewrite(surveyed, rules=[rule], unsafe=rule.safety == "unsafe")


def _diff(expected: str, found: str) -> str:
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "expected", "found", lineterm="")
    return "\n".join(f"    {line}" for line in lines)
