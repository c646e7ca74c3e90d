"""--write: change the repository itself, once everything about it is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import MigrateError
from ..reading.finding import Finding
from ..reporting.report import PARITY, Report
from ..rewriting.rewrite import Change
from .journal import write_in_place


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """The files that were written, or why none was."""

    written: list[str] | None = None
    blocked: str | None = None
    findings: tuple[Finding, ...] = ()


def write_if_proved(root: Path, changes: Sequence[Change], report: Report, models: Path | None) -> InPlace:
    """Change the repository itself; not where a proof failed, for then the change is not what was promised."""
    failed = [script.path for script in report.scripts if script.executed == "failed"]
    if failed:
        return InPlace(blocked=f"the migrated form of {', '.join(failed)} does not do what the original does")
    if report.exit_status & PARITY:
        return InPlace(blocked="the packaged model does not compute what the original does")
    try:
        return InPlace(written=write_in_place(root, changes, models))
    except MigrateError as error:
        finding = Finding("", 1, 0, "PS511", f"not written in place: {error}", "error")
        return InPlace(blocked=str(error), findings=(finding,))
