"""A repository that brings a journal of its own, links or traps where --write writes: none is believed or followed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.api import migrate
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.stages.journal import journal_folder, recover, undo, write_in_place

SCRIPT = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))

model = Net()
model.eval()
with torch.no_grad():
    for batch in [torch.zeros(1, 3, 8, 8)]:
        print(model(batch).argmax(1))
"""
# Its construction fails, so that a whole preview takes seconds.
UNBUILT = SCRIPT.replace("super().__init__()", "super().__init__(1 / 0)")
PLANTED = b"[core]\n\tfsmonitor = touch planted;\n"
CHANGE = [Change("evaluate.py", SCRIPT.encode(), b"new\n", ["PS201"], [])]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/headrace"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    (root / ".git").mkdir(parents=True)
    (root / ".git/config").write_text("[core]\n\tbare = false\n")
    (root / "evaluate.py").write_text(SCRIPT)
    return root


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def forged(journal: Path, path: str, now: bytes) -> Path:
    """An interrupted write as the first version of the journal recorded it, whose recovery writes PLANTED to `path`."""
    entry = journal / "0001"
    (entry / "before").mkdir(parents=True)
    (entry / "after").mkdir()
    (entry / "before/0").write_bytes(PLANTED)
    (entry / "record.json").write_text(
        json.dumps({"schema": 1, "files": [{"path": path, "before": sha(PLANTED), "after": sha(now)}], "models": False})
    )
    return entry


def snapshot(root: Path) -> dict[str, tuple[int, ...] | str]:
    """Names, inodes, modes, times, contents: of the folders too, which tell of files that came and went."""
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        data = sha(path.read_bytes()) if path.is_file() and not path.is_symlink() else ""
        kept = (status.st_ino, status.st_mode, status.st_nlink, status.st_mtime_ns, status.st_ctime_ns, data)
        found[path.relative_to(root).as_posix()] = kept
    return found


@pytest.mark.parametrize("command", ["--check", "undo", "--write"])
@pytest.mark.parametrize("path", [".git/config", "evaluate.py"])
def test_a_journal_that_comes_with_a_clone_is_not_recovered(root: Path, command: str, path: str) -> None:
    forged(root / ".headrace/journal", path, (root / path).read_bytes())
    if command == "undo":
        with pytest.raises(MigrateError, match="nothing to undo"):
            undo(root)
    elif command == "--write":
        write_in_place(root, CHANGE)
    else:
        migrate(root, check=True)
    assert (root / ".git/config").read_text() == "[core]\n\tbare = false\n"
    assert (root / path).read_bytes() != PLANTED
    assert not (root / "planted").exists()


def test_a_journal_in_the_state_folder_needs_this_users_key(root: Path) -> None:
    place = journal_folder(root)
    entry = forged(place, "evaluate.py", SCRIPT.encode())
    record = (entry / "record.json").read_bytes()
    (entry / "record.json").write_bytes(sha(record).encode() + b"\n" + record)
    for act in (recover, undo, lambda root: write_in_place(root, CHANGE)):
        with pytest.raises(MigrateError, match="no journal that headrace wrote"):
            act(root)
    assert (root / "evaluate.py").read_text() == SCRIPT


def test_a_journal_of_another_repository_is_not_taken_for_this_ones(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "evaluate.py").write_text(SCRIPT)
    write_in_place(other, CHANGE)
    journal_folder(other).rename(journal_folder(root))
    (root / "evaluate.py").write_bytes(b"new\n")
    with pytest.raises(MigrateError, match="another repository"):
        undo(root)
    assert (root / "evaluate.py").read_bytes() == b"new\n"


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_key_that_others_can_read_is_no_key(root: Path, own_state: Path, mode: int) -> None:
    write_in_place(root, CHANGE)
    assert (own_state / "key").stat().st_mode & 0o777 == 0o600
    assert own_state.stat().st_mode & 0o777 == 0o700
    (own_state / "key").chmod(mode)
    with pytest.raises(MigrateError, match="not readable by its owner alone"):
        undo(root)
    assert (root / "evaluate.py").read_bytes() == b"new\n"


def test_a_state_folder_inside_the_repository_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    before = snapshot(root)
    for act in (recover, undo, lambda root: write_in_place(root, CHANGE)):
        with pytest.raises(MigrateError, match="XDG_STATE_HOME"):
            act(root)
    assert snapshot(root) == before


@pytest.mark.parametrize("name", ["hooks/post-checkout.py", "config"])
@pytest.mark.parametrize("git", [".git", ".GIT", "sub/.git"])
def test_nothing_is_written_in_git_not_even_through_a_link(root: Path, git: str, name: str) -> None:
    place = root / git / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(SCRIPT)
    (root / "evaluate.py").unlink()
    (root / "evaluate.py").symlink_to(place.relative_to(root))
    with pytest.raises(MigrateError, match=r"\.git"):
        write_in_place(root, CHANGE)
    assert place.read_text() == SCRIPT


@pytest.mark.parametrize("when", ["write", "undo", "recover"])
def test_a_folder_that_became_a_link_leads_nowhere(root: Path, tmp_path: Path, when: str) -> None:
    outside = tmp_path / "outside"
    (root / "pkg").mkdir()
    (root / "pkg/model.py").write_bytes(b"old")
    change = [Change("pkg/model.py", b"old", b"new", ["PS201"], [])]
    if when != "write":
        write_in_place(root, change)
        if when == "recover":
            (journal_folder(root) / "0001/done").unlink()
    (root / "pkg").rename(outside)
    (root / "pkg").symlink_to(outside)
    kept = (outside / "model.py").read_bytes()
    with pytest.raises(MigrateError, match=r"model\.py"):
        {"write": lambda: write_in_place(root, change), "undo": lambda: undo(root), "recover": lambda: recover(root)}[when]()
    assert (outside / "model.py").read_bytes() == kept
    assert [path.name for path in outside.iterdir()] == ["model.py"]


@pytest.mark.parametrize("name", [".headrace", ".headrace/models", ".headrace/.gitignore"])
def test_links_where_the_models_go_lead_nowhere(root: Path, tmp_path: Path, name: str) -> None:
    outside, models = tmp_path / "outside", tmp_path / "models"
    (models / "net/1").mkdir(parents=True)
    outside.mkdir()
    (outside / "precious").write_text("precious")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).symlink_to(outside / "made" if name.endswith("ignore") else outside)
    if name == ".headrace":
        with pytest.raises(MigrateError, match="the files are as they were"):
            write_in_place(root, CHANGE, models)
    else:
        write_in_place(root, CHANGE, models)
        undo(root)
    assert sorted(path.name for path in outside.iterdir()) == ["precious"]
    assert (root / name).is_symlink()
    assert (root / "evaluate.py").read_text() == SCRIPT


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link"])
def test_a_file_that_is_none_does_not_stop_an_undo_for_ever(root: Path, tmp_path: Path, kind: str) -> None:
    write_in_place(root, CHANGE)
    (root / "evaluate.py").unlink()
    if kind == "a pipe":
        os.mkfifo(root / "evaluate.py")
    elif kind == "a folder":
        (root / "evaluate.py").mkdir()
    else:
        (tmp_path / "same.py").write_bytes(b"new\n")
        (root / "evaluate.py").symlink_to(tmp_path / "same.py")
    with pytest.raises(MigrateError, match="changed since"):
        undo(root)


READER = """
import sys
root = sys.argv[1]
opened = []
def audit(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, (str, bytes)) and flags & 3 and str(path).startswith(root):
            opened.append(str(path))
    elif event in {f"os.{what}" for what in "mkdir remove rmdir rename chmod utime link symlink truncate".split()}:
        opened.extend(f"{event} {one}" for one in arguments[:2] if str(one).startswith(root))
sys.addaudithook(audit)
from headrace.migrate.api import migrate
migrate(root, check=sys.argv[2] == "check", verify=False)
print(opened)
"""


@pytest.mark.parametrize("mode", ["check", "preview"])
def test_previews_open_nothing_in_the_repository_for_writing(root: Path, mode: str) -> None:
    (root / "evaluate.py").write_text(UNBUILT)
    forged(root / ".headrace/journal", ".git/config", (root / ".git/config").read_bytes())
    (root / ".headrace/notes.txt").write_text("mine")
    (root / "empty").mkdir()
    before = snapshot(root)
    done = subprocess.run([sys.executable, "-c", READER, str(root), mode], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
    assert snapshot(root) == before


def test_a_preview_of_a_tree_that_cannot_be_written(root: Path) -> None:
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        before = snapshot(root)
        report = migrate(root, check=True)
        assert not [finding for finding in report.findings if finding.severity == "error"], report.findings
        assert snapshot(root) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)
