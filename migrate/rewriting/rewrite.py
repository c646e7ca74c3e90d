"""Rewrite: apply the rules to the files that they touch, losslessly."""

import codecs
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..reading.edits import Positions, apply_edits
from ..reading.facts import Loop, Survey
from ..reading.finding import Finding
from ..reading.notebooks.notebook import cell_sources
from ..reading.source import NOTEBOOK, SourceFile, parse_source
from ..survey.survey import ProjectIndex, project_index, resurvey
from .repair import Repaired, draft_edits, remarks, repair_file
from .rule import Context, Fix, Rule, all_rules


@dataclass(frozen=True)
class Change:
    """One file before and after, the codes of the rules that changed it, and what they remarked. `before` may equal `after`."""

    path: str
    before: bytes
    after: bytes
    rules: list[str]
    findings: list[Finding]
    """At their places in `before`."""
    repaired: bytes | None = None
    """The file with its repairs alone, which the later stages read; None where it has none."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Rewritten:
    """What the rules made of a repository. `survey` is of the repaired sources, from which later stages go on."""

    survey: Survey
    repairs: list[Change]
    """The files that were repaired, before and after that."""
    changes: list[Change]
    """Every file that changed in either stage or that a rule remarked on, from the original to the final form."""


def rewrite(
    survey: Survey,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    unsafe: bool = False,
    rules: Sequence[Rule] | None = None,
) -> list[Change]:
    """The changes that the rules make to the surveyed files; nothing is written.

    `select` and `ignore` are rule codes or prefixes of them ("PS2"); an unknown one raises ValueError. `rules`, where given,
    are taken as they are instead. Files without a change appear only when a rule remarked something.
    """
    return rewrite_all(survey, rules=choose_rules(select, ignore) if rules is None else rules, unsafe=unsafe).changes


def rewrite_all(
    survey: Survey,
    *,
    rules: Sequence[Rule] | None = None,
    unsafe: bool = False,
    eager: Mapping[Loop, str] | None = None,
    seen: frozenset[str] = frozenset(),
) -> Rewritten:
    """As `rewrite`, with what lies between: first sources are repaired, in memory, then they are surveyed anew and rewritten.

    `rules` are all but those that an option asks for where none are given. Findings stand where the original has them. The
    model calls in `eager` are left as they are, for the reasons given there; the classes named in `seen` are classifiers.
    """
    rules = choose_rules() if rules is None else rules
    repaired = [repair_file(survey, file, rules, unsafe) for file in survey.files]
    repairs = [
        Change(item.file.path, item.before.data, item.file.data, list(item.rules), list(item.findings))
        for item in repaired
        if item.file is not item.before
    ]
    if repairs or seen:
        survey = resurvey(survey, tuple(item.file for item in repaired), seen)
    index = project_index(survey)
    later = [rule for rule in rules if rule.stage == "rewrite"]
    changes = (_rewrite_file(index, survey, item, later, unsafe, eager or {}) for item in repaired)
    return Rewritten(survey, repairs, [change for change in changes if change is not None])


def rewritten_scripts(survey: Survey, changes: Sequence[Change]) -> dict[str, list[str]]:
    """Script -> the rules that changed code which it is or calls."""
    rules = {change.path: change.rules for change in changes if change.changed}
    found = {}
    for script in survey.scripts:
        reached = {path for loop in script.loops for path in (loop.path, *loop.through)}
        if touched := {script.path, *reached} & rules.keys():
            found[script.path] = sorted({code for path in touched for code in rules[path]})
    return found


def choose_rules(
    select: Sequence[str] = (), ignore: Sequence[str] = (), extra: Sequence[Rule] = (), options: Sequence[str] = ()
) -> list[Rule]:
    """The rules, with `extra` ones last, whose codes begin with one of `select` (all, when empty) and with none of `ignore`.

    A rule that an option asks for is among them where that is one of `options`, or where its whole code is selected.
    """
    rules = [*all_rules(), *extra]
    for code in [*select, *ignore]:
        if not code or not any(rule.code.startswith(code) for rule in rules):
            raise ValueError(f"no rule has a code beginning with {code!r}; there are {', '.join(rule.code for rule in rules)}")
    asked = [rule for rule in rules if rule.option is None or rule.option in options or rule.code in select]
    chosen = [rule for rule in asked if not select or rule.code.startswith(tuple(select))]
    return [rule for rule in chosen if not ignore or not rule.code.startswith(tuple(ignore))]


def _rewrite_file(
    index: ProjectIndex,
    survey: Survey,
    repaired: Repaired,
    rules: Sequence[Rule],
    unsafe: bool,
    eager: Mapping[Loop, str],
) -> Change | None:
    file = repaired.file
    module = index.repository.modules.get(file.path)
    codes, findings, after = list(repaired.rules), list(repaired.findings), file.data
    if module is not None and file.text is not None:
        sites = tuple(site for site in index.sites if site.module is module)
        context = Context(module, survey, index, Positions(file.text), sites, eager)
        draft = draft_edits(_all_remarks(rules, context), unsafe)
        made = [repaired.at_original(finding) for finding in draft.findings]
        if draft.edits:
            after = file.encode(apply_edits(file.text, draft.edits))
        if draft.edits and not _parses(file, after):
            message = "the rewritten file would not parse, so it was left as it is; please report this"
            made = [replace(item, fix="manual") if item.fix == "applied" else item for item in made]
            made.append(Finding(file.path, 1, 0, "PS000", message, "error"))
            after = file.data
        else:
            codes += draft.rules
        findings += made
    if not findings:
        return None
    mended = file.data if file is not repaired.before else None
    return Change(file.path, repaired.before.data, after, sorted(set(codes)), sorted(findings), mended)


def _all_remarks(rules: Sequence[Rule], context: Context) -> Iterator[Fix]:
    """Those of rules that an option asks for, then of the others, which do not see the calls that the former rewrite."""
    first, others = ([rule for rule in rules if (rule.option is not None) == asked] for asked in (True, False))
    yield from remarks(first, context)
    claimed = {id(site) for rule in first for site in rule.claims(context)}
    sites = tuple(site for site in context.sites if id(site) not in claimed)
    yield from remarks(others, replace(context, sites=sites) if claimed else context)


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
