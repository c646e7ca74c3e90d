"""Folders and files that this user may not read stop nothing: they are left out, and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.as_user import AS_USER

READ = (
    AS_USER
    + """
from headrace.migrate.stages.copy_tree import copy_tree
from headrace.migrate.survey.survey import survey
root = Path(sys.argv[1])
found = survey(root)
copied = copy_tree(root, Path(sys.argv[2]))
names = sorted(path.relative_to(sys.argv[2]).as_posix() for path in Path(sys.argv[2]).rglob("*") if path.is_file())
findings = [[finding.path, finding.code] for finding in found.findings]
print(json.dumps({"findings": findings, "unreadable": sorted(copied.unreadable), "copied": names}))
"""
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "clone"
    for name in ("lost+found", "pkg/closed", "only names", "only entering"):
        (root / name).mkdir(parents=True)
        (root / name / "x.py").write_text("import torch\n")
    (root / "evaluate.py").write_text("import torch\n")
    (root / "secret.bin").write_text("x")
    modes = {"lost+found": 0, "pkg/closed": 0, "only names": 0o400, "only entering": 0o100, "secret.bin": 0}
    for name, mode in modes.items():
        (root / name).chmod(mode)
    yield root
    for name in modes:
        (root / name).chmod(0o700)


def test_closed_folders_are_left_out_and_named(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", READ, str(root), str(tmp_path / "copy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    closed = ["lost+found", "only entering", "only names", "pkg/closed"]
    assert sorted(path for path, code in said["findings"] if code == "PS003") == closed
    assert said["unreadable"] == [*closed, "secret.bin"]
    assert said["copied"] == ["evaluate.py"]
