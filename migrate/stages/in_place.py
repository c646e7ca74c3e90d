"""--write: change the repository itself, once everything about it is proved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import MigrateError
from ..reading.finding import Finding
from ..reporting.report import PARITY, Report
from ..rewriting.rewrite import Change
from .journal import write_in_place


def write_if_proved(root: Path, changes: Sequence[Change], report: Report, models: Path | None) -> None:
    """Change the repository itself; not where a proof failed, for then the change is not what was promised."""
    failed = [script.path for script in report.scripts if script.executed == "failed"]
    if failed:
        report.blocked = f"the migrated form of {', '.join(failed)} does not do what the original does"
    elif report.exit_status & PARITY:
        report.blocked = "the packaged model does not compute what the original does"
    else:
        try:
            report.written = write_in_place(root, changes, models)
        except MigrateError as error:
            report.blocked = str(error)
            report.findings.append(Finding("", 1, 0, "PS511", f"not written in place: {error}", "error"))
