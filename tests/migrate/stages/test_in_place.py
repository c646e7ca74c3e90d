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
    write_if_proved(root, CHANGES, made, None)
    assert (made.written, made.blocked, made.exit_status) == (["a.py"], None, 0)
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
    write_if_proved(root, CHANGES, failed, None)
    assert why in (failed.blocked or "")
    assert failed.written is None
    assert failed.exit_status & 1
    assert (root / "a.py").read_bytes() == b"old"


def test_a_file_that_changed_meanwhile_is_an_error_finding(root: Path) -> None:
    (root / "a.py").write_bytes(b"mine")
    made = report()
    write_if_proved(root, CHANGES, made, None)
    assert "a.py" in (made.blocked or "")
    assert [(finding.code, finding.severity) for finding in made.findings] == [("PS511", "error")]
    assert (root / "a.py").read_bytes() == b"mine"
