"""Rewrite: apply the rules to the files that they touch, losslessly."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .edits import Edit, Positions, apply_edits
from .facts import Survey
from .finding import Finding
from .notebook import cell_sources
from .rule import Context, Fix, Rule, all_rules
from .scopes import Module
from .source import NOTEBOOK, SourceFile, parse_source
from .survey import Knowledge, knowledge


@dataclass(frozen=True)
class Change:
    """One file before and after, the codes of the rules that changed it, and what they remarked. `before` may equal `after`."""

    path: str
    before: bytes
    after: bytes
    rules: list[str]
    findings: list[Finding]

    @property
    def changed(self) -> bool:
        return self.before != self.after


def rewrite(survey: Survey, *, select: Sequence[str] = (), ignore: Sequence[str] = (), unsafe: bool = False) -> list[Change]:
    """The changes that the rules make to the surveyed files; nothing is written.

    `select` and `ignore` are rule codes or prefixes of them ("PS2"); an unknown one raises ValueError. Files without a change
    appear only when a rule remarked something.
    """
    rules = choose_rules(select, ignore)
    known = knowledge(survey)
    changes = (_rewrite_file(survey, known, module, rules, unsafe) for module in known.repository.modules.values())
    return [change for change in changes if change is not None]


def choose_rules(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Rule]:
    """The rules whose codes begin with one of `select` (all, when empty) and with none of `ignore`."""
    rules = all_rules()
    for code in [*select, *ignore]:
        if not code or not any(rule.code.startswith(code) for rule in rules):
            raise ValueError(f"no rule has a code beginning with {code!r}; there are {', '.join(rule.code for rule in rules)}")
    chosen = [rule for rule in rules if not select or rule.code.startswith(tuple(select))]
    return [rule for rule in chosen if not ignore or not rule.code.startswith(tuple(ignore))]


def _rewrite_file(survey: Survey, known: Knowledge, module: Module, rules: Sequence[Rule], unsafe: bool) -> Change | None:
    file = module.file
    text = file.text
    sites = tuple(site for site in known.sites if site.module is module)
    if text is None or not sites:
        return None
    context = Context(module, survey, known, Positions(text), sites)
    edits: list[Edit] = []
    applied: list[str] = []
    findings: list[Finding] = []
    for rule in rules:
        for fix in rule.check(context):
            allowed = fix.finding.fix == "safe" or (unsafe and fix.finding.fix == "unsafe")
            if fix.edits and allowed and not _overlaps(edits, fix):
                edits += [edit for edit in fix.edits if edit not in edits]
                applied.append(rule.code)
                findings.append(replace(fix.finding, fix="applied"))
            else:
                findings.append(fix.finding)
    if not findings:
        return None
    after = file.encode(apply_edits(text, edits)) if edits else file.data
    if edits and not _parses(file, after):
        message = "the rewritten file would not parse, so it was left as it is; please report this"
        findings = [replace(item, fix="manual") if item.fix == "applied" else item for item in findings]
        findings.append(Finding(file.path, 1, 0, "PS000", message, "error"))
        return Change(file.path, file.data, file.data, [], sorted(findings))
    return Change(file.path, file.data, after, sorted(set(applied)), sorted(findings))


def _overlaps(edits: Sequence[Edit], fix: Fix) -> bool:
    taken = [(edit.start, edit.end) for edit in edits if edit.end > edit.start]
    new = [edit for edit in fix.edits if edit.end > edit.start]
    return any(edit.start < end and start < edit.end for edit in new for start, end in taken)


def _parses(file: SourceFile, data: bytes) -> bool:
    """Whether the edited file parses; of a notebook, as many cells as before."""
    after = parse_source(file.path, data)
    if file.notebook is None or after.notebook is None:
        return after.tree is not None
    return after.tree is not None and len(after.notebook.findings) <= len(file.notebook.findings)


def unified_diff(changes: Sequence[Change]) -> str:
    """The changes as one unified diff, with `a/` and `b/` prefixes; of notebooks, the changed cells, as people see them."""
    parts: list[str] = []
    for title, before, after in (view for change in changes if change.changed for view in views(change)):
        lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{title}", f"b/{title}")
        missing = "\n" if f"{NOTEBOOK}:cell " in title else "\n\\ No newline at end of file\n"  # cells rarely end in one
        parts += [line if line.endswith("\n") else f"{line}{missing}" for line in lines]
    return "".join(parts)


def views(change: Change) -> list[tuple[str, str, str]]:
    """What people want to see of a change: (title, text before, text after) of the file, or of each changed cell."""
    if not change.path.endswith(NOTEBOOK):
        before, after = (data.decode("utf-8", errors="backslashreplace") for data in (change.before, change.after))
        return [(change.path, before, after)]
    old, new = (cell_sources(data.removeprefix(codecs.BOM_UTF8).decode()) for data in (change.before, change.after))
    return [(f"{change.path}:cell {number}", old[number], new[number]) for number in old if old[number] != new[number]]


def _lines(text: str) -> list[str]:
    """Lines for a diff, ended by \\n alone, so that a \\r before it shows as the part of the line that it is."""
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
