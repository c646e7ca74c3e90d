"""Places in notebooks, for people: the stages speak of lines of the joined module, the report of cells and lines in them."""

import re
from dataclasses import replace

from ..reading.facts import Survey
from ..reading.finding import Finding
from ..resolving.resolved import ChainStep
from .report import Report


def locate_in_cells(report: Report, surveyed: Survey) -> None:
    """Turn every place in a notebook that the report names ("net.ipynb:12") into a cell's ("net.ipynb:cell 3:2")."""
    notebooks = {file.path: file.notebook for file in surveyed.files if file.notebook is not None}
    if not notebooks:
        return
    longest_first = sorted(notebooks, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))}):(\d+)")

    def in_cells(text: str) -> str:
        def cell(found: re.Match[str]) -> str:
            number, line = notebooks[found[1]].locate(int(found[2]))
            return f"{found[1]}:cell {number}:{line}"

        return pattern.sub(cell, text)

    def place(finding: Finding) -> Finding:
        found = notebooks.get(finding.path)
        if found is None or finding.cell or not found.cells:
            return replace(finding, message=in_cells(finding.message))
        cell, line = found.locate(finding.line)
        return replace(finding, cell=cell, line=line, message=in_cells(finding.message))

    def link(step: ChainStep) -> ChainStep:
        found = notebooks.get(step.path)
        if found is None:
            return step
        cell, line = found.locate(step.line)
        return replace(step, path=f"{step.path}:cell {cell}", line=line)

    report.findings = [place(finding) for finding in report.findings]
    report.chain = tuple(link(step) for step in report.chain)
    for model in report.models:
        model.factory = in_cells(model.factory) if model.factory else None
        model.parity.why = in_cells(model.parity.why) if model.parity.why else None
    for script in report.scripts:
        script.why = in_cells(script.why) if script.why else None
    for recovered in report.preprocessing:
        recovered.source = in_cells(recovered.source)
    for checkpoint in report.checkpoints:
        checkpoint.source = in_cells(checkpoint.source)
        checkpoint.why = in_cells(checkpoint.why) if checkpoint.why else None
