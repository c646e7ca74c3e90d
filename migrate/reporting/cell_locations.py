"""Places for people: the stages speak of lines of repaired files and of a notebook's joined module, the report of lines as they
are in the repository, in notebooks of cells and lines in them."""

import difflib
import re
from dataclasses import replace

from ..proving.rehearsal_protocol import OF_MIGRATED
from ..reading.facts import Survey
from ..reading.finding import Finding
from ..reading.source import CELLS, parse_source
from ..resolving.resolved import ChainStep
from ..rewriting.rewrite import Change
from .report import Report


def locate_in_cells(report: Report, surveyed: Survey) -> None:
    """Turn every place in a repaired file that the report names into that of the file as it came, and every place in a notebook
    ("net.ipynb:12") into a cell's ("net.ipynb:cell 3:2"). `surveyed` are the files as they came."""
    notebooks = {file.path: file.notebook for file in surveyed.files if file.notebook is not None}
    lines = {change.path: _lines_before(change) for change in report.changes if change.repaired is not None}
    of_rules = {finding for change in report.changes for finding in change.findings}
    if not notebooks and not lines:
        return
    longest_first = sorted({**notebooks, **lines}, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?:{re.escape(CELLS)})?:(\d+)")
    migrated = {
        change.path: parse_source(change.path, change.after).notebook for change in report.changes if change.path in notebooks
    }

    def at(path: str, line: int) -> tuple[int, int]:
        """The cell, 0 outside of notebooks, and the line in it."""
        before = lines.get(path, ())
        line = before[line - 1] if 0 < line <= len(before) else line
        found = notebooks.get(path)
        return found.locate(line) if found is not None and found.cells else (0, line)

    def in_cells(text: str) -> str:
        def cell(found: re.Match[str]) -> str:
            number, line = at(found[1], int(found[2]))
            return f"{found[1]}:cell {number}:{line}" if number else f"{found[1]}:{line}"

        def migrated_cell(found: re.Match[str]) -> str:
            notebook = migrated.get(found[1]) or notebooks.get(found[1])
            if notebook is None or not notebook.cells:
                return cell(found)
            number, line = notebook.locate(int(found[2]))
            return f"{found[1]}:cell {number}:{line}"

        before, told, after = text.partition(OF_MIGRATED)  # that runs with lines of its own
        return f"{pattern.sub(cell, before)}{told}{pattern.sub(migrated_cell, after)}"

    def place(finding: Finding) -> Finding:
        if finding.cell:
            return finding
        found = notebooks.get(finding.path)
        if finding in of_rules:  # at its place in the file as it came
            cell, line = found.locate(finding.line) if found is not None and found.cells else (0, finding.line)
        else:
            cell, line = at(finding.path, finding.line)
        return replace(finding, cell=cell, line=line, message=in_cells(finding.message))

    def link(step: ChainStep) -> ChainStep:
        cell, line = at(step.path, step.line)
        return replace(step, path=f"{step.path}:cell {cell}" if cell else step.path, line=line)

    report.findings = [place(finding) for finding in report.findings]
    report.chain = tuple(link(step) for step in report.chain)
    for model in report.models:
        model.factory = in_cells(model.factory) if model.factory else None
        model.parity.why = in_cells(model.parity.why) if model.parity.why else None
    for script in report.scripts:
        script.why = in_cells(script.why) if script.why else None
        script.up_to = in_cells(script.up_to) if script.up_to else None
        script.standins = [
            {**item, "where": in_cells(item["where"]) if item.get("where") else None} for item in script.standins
        ]
    for recovered in report.preprocessing:
        recovered.source = in_cells(recovered.source)
    for checkpoint in report.checkpoints:
        checkpoint.source = in_cells(checkpoint.source)
        checkpoint.why = in_cells(checkpoint.why) if checkpoint.why else None


def _lines_before(change: Change) -> list[int]:
    """For each line of a repaired file, the line of the file as it came; what a repair wrote stands where it begins."""
    before, after = (parse_source(change.path, data).lines for data in (change.before, change.repaired or change.before))
    found: list[int] = []
    for _, i1, i2, j1, j2 in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        found += [min(i1 + offset + 1, max(i1 + 1, i2)) for offset in range(j2 - j1)]
    return found
