"""--write changes the repository only where nothing that was tried went wrong, and says why where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.migrate.reporting.report import ModelReport, Parity, Report, ScriptReport
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.stages.in_place import write_if_proved

CHANGES = [Change("a.py", b"old", b"new", ["PS201"], [])]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(b"old")
    return tmp_path


def report(**fields: object) -> Report:
    return Report(repository="/r", would_change=True, **fields)  # type: ignore[arg-type]


def test_written_and_then_nothing_would_change(root: Path) -> None:
    made = report(scripts=[ScriptReport(path="a.py", roles=["evaluate"], executed="passed")])
    assert made.exit_status == 1
    placed = write_if_proved(root, CHANGES, made, None)
    assert (placed.written, placed.blocked, placed.findings) == (["a.py"], None, ())
    made.written = placed.written
    assert made.exit_status == 0
    assert (root / "a.py").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        (report(scripts=[ScriptReport(path="a.py", roles=["evaluate"], executed="failed")]), "migrated form of a.py"),
        (report(models=[ModelReport(name="m", parity=Parity(status="failed"))]), "packaged model"),
        (report(parity_failed=True), "packaged model"),
    ],
)
def test_a_failed_proof_leaves_every_file(root: Path, failed: Report, why: str) -> None:
    placed = write_if_proved(root, CHANGES, failed, None)
    assert why in (placed.blocked or "")
    assert placed.written is None
    assert failed.exit_status & 1
    assert (root / "a.py").read_bytes() == b"old"


def test_a_file_that_changed_meanwhile_is_an_error_finding(root: Path) -> None:
    (root / "a.py").write_bytes(b"mine")
    placed = write_if_proved(root, CHANGES, report(), None)
    assert "a.py" in (placed.blocked or "")
    assert [(finding.code, finding.severity) for finding in placed.findings] == [("PS511", "error")]
    assert (root / "a.py").read_bytes() == b"mine"
