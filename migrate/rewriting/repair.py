"""Repair: what no longer runs today is mended in memory first, so that everything after it reads sources that parse."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..reading.edits import Edit, Positions, apply_edits, trace_back
from ..reading.facts import Survey
from ..reading.finding import Finding
from ..reading.scopes import Module
from ..reading.source import SourceFile, parse_source, split_lines
from ..survey.survey import project_index
from .rule import Context, Fix, Rule, TextRule

_PASSES = 8
"""Rules whose edits overlap wait for the next pass; nobody nests them deeper than a few levels."""


@dataclass(frozen=True)
class Repaired:
    """One file before and after its repairs, the codes of the rules that made them, and what they remarked in `before`."""

    before: SourceFile
    file: SourceFile
    rules: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    layers: tuple[tuple[Edit, ...], ...] = ()

    def at_original(self, finding: Finding) -> Finding:
        """A finding on the repaired file, at its place in the original."""
        if not self.layers or self.file.text is None or self.before.text is None:
            return finding
        offset = Positions(self.file.text).starts[finding.line - 1] + finding.column
        for edits in reversed(self.layers):
            offset = trace_back(edits, offset)
        line, column = Positions(self.before.text).place(offset)
        return replace(finding, line=line, column=column)


@dataclass(frozen=True)
class Draft:
    """The edits to make to one text, the codes of their rules, and all that was remarked; an edit's remark is "applied"."""

    edits: list[Edit]
    rules: list[str]
    findings: list[Finding]


def remarks(rules: Iterable[Rule], context: Context) -> Iterator[Fix]:
    """What the rules remark on one file. A rule that breaks on it is a finding, and stops no other."""
    for rule in rules:
        try:
            yield from list(rule.check(context))
        except Exception as error:  # noqa: BLE001 - one rule on one file must not end a migration
            yield _broken(rule, context.module.path, error)


def _broken(rule: Rule, path: str, error: Exception) -> Fix:
    message = f"the rule {rule.code} failed on this file and was left out; please report this: {type(error).__name__}: {error}"
    return Fix(Finding(path, 1, 0, "PS000", message, "error"))


def draft_edits(fixes: Iterable[Fix], unsafe: bool) -> Draft:
    """The fixes that may be made together; one whose edits overlap those of an earlier one is not."""
    draft = Draft([], [], [])
    for fix in fixes:
        allowed = fix.finding.fix == "safe" or (unsafe and fix.finding.fix == "unsafe")
        if fix.edits and allowed and not _overlaps(draft.edits, fix):
            draft.edits.extend(edit for edit in fix.edits if edit not in draft.edits)
            draft.rules.append(fix.finding.code)
            draft.findings.append(replace(fix.finding, fix="applied"))
        else:
            draft.findings.append(fix.finding)
    return draft


def _overlaps(edits: Sequence[Edit], fix: Fix) -> bool:
    return any(new.start < old.end and old.start < new.end for new in fix.edits for old in edits if new != old)


def repair_file(survey: Survey, file: SourceFile, rules: Sequence[Rule], unsafe: bool) -> Repaired:
    """The file with its repairs made, in as many passes as it takes; what does not parse afterwards stays as it was."""
    result = Repaired(file, file)
    rules = [rule for rule in rules if rule.stage == "repair"]
    for _ in range(_PASSES if rules else 0):
        draft = draft_edits(_fixes(survey, result.file, rules, unsafe), unsafe)
        here = [result.at_original(finding) for finding in draft.findings]
        made = [finding for finding in here if finding.fix == "applied"]
        if not made:
            return replace(result, findings=(*result.findings, *here))
        text = result.file.text
        assert text is not None
        after = parse_source(file.path, file.encode(apply_edits(text, draft.edits)))
        if after.tree is None:
            undone = [replace(finding, fix="manual") if finding.fix == "applied" else finding for finding in here]
            if result.file.tree is not None:
                message = "the repaired file would not parse, so it was left as it is; please report this"
                undone.append(Finding(file.path, 1, 0, "PS000", message, "error"))
            return replace(result, findings=(*result.findings, *undone))
        result = Repaired(
            file,
            after,
            tuple(sorted({*result.rules, *draft.rules})),
            (*result.findings, *made),
            (*result.layers, tuple(draft.edits)),
        )
    return result


def _fixes(survey: Survey, file: SourceFile, rules: Sequence[Rule], unsafe: bool) -> Iterator[Fix]:
    if file.text is None:
        return
    yield from _mended_cells(file, [rule for rule in rules if isinstance(rule, TextRule)], unsafe)
    if file.tree is not None:
        index = project_index(survey)
        module = index.repository.modules.get(file.path)
        if module is None or module.file is not file:
            module = Module(file, file.tree, index.repository)
        yield from remarks(rules, Context(module, survey, index, Positions(file.text), ()))
    elif file.problem is not None and file.problem.code == "PS001":
        yield from _text_remarks([rule for rule in rules if isinstance(rule, TextRule)], file.path, file.text)


def _text_remarks(rules: Iterable[TextRule], path: str, text: str) -> Iterator[Fix]:
    for rule in rules:
        try:
            yield from list(rule.check_text(path, text))
        except Exception as error:  # noqa: BLE001 - as above
            yield _broken(rule, path, error)


def _mended_cells(file: SourceFile, rules: Sequence[TextRule], unsafe: bool) -> Iterator[Fix]:
    """For every cell of a notebook that parses once it is repaired: its text in place of the blank lines that stand for it."""
    for first, broken in file.notebook.broken_cells() if file.notebook is not None else ():
        text, findings = broken, list[Finding]()
        layers: list[list[Edit]] = []
        for _ in range(_PASSES):
            draft = draft_edits(_text_remarks(rules, file.path, text), unsafe)
            if not draft.edits:
                break
            for finding in draft.findings:
                offset = Positions(text).starts[finding.line - 1] + finding.column
                for edits in reversed(layers):
                    offset = trace_back(edits, offset)
                line, column = Positions(broken).place(offset)
                if finding.fix == "applied":
                    findings.append(replace(finding, line=first + line - 1, column=column, fix="safe"))
            layers.append(draft.edits)
            text = apply_edits(text, draft.edits)
        if layers and parse_source("cell.py", text.encode("utf-8", "surrogatepass")).tree is not None:
            assert file.text is not None
            starts = Positions(file.text).starts
            place = starts[first - 1]
            yield from (Fix(item, (Edit(place, place + len(split_lines(broken)), text),)) for item in findings)
