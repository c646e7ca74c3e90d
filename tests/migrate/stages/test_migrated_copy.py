"""The migrated copy appears whole or not at all, and never over something that Headrace did not write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.reading.source import SourceFile
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.stages.copy_tree import Copied
from headrace.migrate.stages.migrated_copy import check_output, models_folder, recover_output, write_output

pytestmark = pytest.mark.usefixtures("warm_sandbox")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "pkg").mkdir(parents=True)
    (root / "evaluate.py").write_bytes(b"before\r\n")
    (root / "pkg/data.bin").write_bytes(bytes(range(256)))
    return root


CHANGE = Change("evaluate.py", b"before\r\n", b"after\r\n", ["PS201"], [])


def write(repository: Path, out: Path, models: Path | None = None) -> None:
    write_output(repository, out, [CHANGE], models=models, report=lambda copied: {"schema": 1, "linked": copied.linked})


def test_only_changed_files_differ_and_the_models_are_there(repository: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "net/1").mkdir(parents=True)
    (models / "net/1/model.onnx").write_bytes(b"onnx")
    write(repository, tmp_path / "deep/out", models)
    out = tmp_path / "deep/out"
    assert (out / "evaluate.py").read_bytes() == b"after\r\n"
    assert (out / "pkg/data.bin").read_bytes() == bytes(range(256))
    assert (out / "models/net/1/model.onnx").read_bytes() == b"onnx"
    assert json.loads((out / "headrace-report.json").read_text()) == {"schema": 1, "linked": []}
    assert (repository / "evaluate.py").read_bytes() == b"before\r\n"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_what_headrace_wrote_is_replaced(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(repository, out)
    (repository / "pkg/data.bin").rename(repository / "pkg/other.bin")
    (out / "pkg/__pycache__").mkdir()
    (out / "pkg/__pycache__/x.pyc").write_bytes(b"")
    write(repository, out)
    assert sorted(path.name for path in (out / "pkg").iterdir()) == ["other.bin"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]


@pytest.mark.parametrize("what", ["edited", "added", "a link", "a package", "in a hidden folder"])
def test_what_was_changed_in_an_earlier_output_is_not_dropped(repository: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "out"
    write(repository, out)
    path = {"edited": "evaluate.py", "added": "pkg/notes.txt", "a link": "pkg/link", "a package": "models/net/labels.txt"}.get(
        what, ".cache/x"
    )
    (out / path).parent.mkdir(parents=True, exist_ok=True)
    if what == "a link":
        (out / path).symlink_to(tmp_path)
    else:
        (out / path).write_text("mine")
    for act in (lambda: check_output(repository, out), lambda: write(repository, out)):
        with pytest.raises(MigrateError, match=f"did not write there: {path};"):
            act()
    assert (out / path).is_symlink() or (out / path).read_text() == "mine"
    (out / path).unlink()
    if what != "edited":
        write(repository, out)


def test_an_output_that_says_not_what_was_written_is_not_dropped(repository: Path, tmp_path: Path) -> None:
    write(repository, tmp_path / "out")
    (tmp_path / "out/.headrace-written.json").unlink()
    with pytest.raises(MigrateError, match="did not write there"):
        write(repository, tmp_path / "out")


def test_an_output_inside_the_repository_does_not_hold_itself(repository: Path) -> None:
    out = repository / "build/out"
    write(repository, out)
    write(repository, out)
    assert not (out / "build/out").exists()
    assert (out / "evaluate.py").exists()


def test_what_headrace_did_not_write_is_refused(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    check_output(repository, other)
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(MigrateError, match="not written by headrace"):
        write(repository, other)
    assert (other / "thesis.tex").read_text() == "precious"
    with pytest.raises(MigrateError, match="repository itself"):
        check_output(repository, repository)
    with pytest.raises(MigrateError, match="repository itself"):
        check_output(repository, tmp_path)
    with pytest.raises(MigrateError, match="is a file"):
        check_output(repository, repository / "evaluate.py")


def test_a_failure_leaves_the_former_output(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(repository, out)

    def fails(_copied: Copied) -> dict:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_output(repository, out, [], models=None, report=fails)
    assert (out / "evaluate.py").read_bytes() == b"after\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]


def test_a_package_named_models_keeps_its_place(repository: Path) -> None:
    assert models_folder(repository) == "models"
    (repository / "models").mkdir()
    assert models_folder(repository) == "model_repository"


def test_a_link_out_of_the_repository_becomes_a_file_of_the_copy(repository: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.py"
    precious.write_bytes(b"before\r\n")
    (repository / "evaluate.py").unlink()
    (repository / "evaluate.py").symlink_to(precious)
    write(repository, tmp_path / "out")
    assert (tmp_path / "out/evaluate.py").read_bytes() == b"after\r\n"
    assert precious.read_bytes() == b"before\r\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.stages import migrated_copy
repository, out, moment = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
rename, fill = Path.rename, migrated_copy._fill
def renamed(self, target):
    rename(self, target)
    if str(target).endswith(moment) or str(self).endswith(moment):
        os.kill(os.getpid(), signal.SIGKILL)
def filled(*args, **named):
    fill(*args, **named)
    if moment == "filled":
        os.kill(os.getpid(), signal.SIGKILL)
Path.rename, migrated_copy._fill = renamed, filled
change = Change("evaluate.py", b"before\\r\\n", b"second\\r\\n", ["PS201"], [])
migrated_copy.write_output(repository, out, [change], models=None, report=lambda copied: {"schema": 1})
"""


@pytest.mark.parametrize(
    ("moment", "holds", "said"),
    [
        ("filled", b"after\r\n", "its unfinished copy was removed"),
        (".headrace-old", b"after\r\n", "what stood there is back"),
        (".headrace-new", b"second\r\n", "its unfinished copy was removed"),
    ],
)
def test_a_kill_at_any_moment_leaves_one_of_both_whole_and_nothing_beside_it(
    repository: Path, tmp_path: Path, moment: str, holds: bytes, said: str
) -> None:
    out = tmp_path / "out"
    write(repository, out)
    done = subprocess.run([sys.executable, "-c", KILLED, str(repository), str(out), moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert any(path.name.startswith(".out.") for path in tmp_path.iterdir())
    assert said in (recover_output(out) or "")
    assert (out / "evaluate.py").read_bytes() == holds
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]
    assert recover_output(out) is None
    write(repository, out)
    assert (out / "evaluate.py").read_bytes() == b"after\r\n"


def test_what_another_run_writes_meanwhile_is_left_to_it(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inner: list[object] = []

    def meanwhile(_copied: Copied) -> dict:
        inner.append(recover_output(out))
        write(repository, out)
        return {"schema": 1}

    write_output(repository, out, [], models=None, report=meanwhile)
    assert inner == [None]
    assert (out / "evaluate.py").read_bytes() == b"before\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]


def test_a_user_s_own_folder_beside_it_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    for name in (".out.mine.headrace-new", ".out.01234567.headrace-new.tar", ".other.01234567.headrace-new"):
        (tmp_path / name).mkdir()
    assert recover_output(tmp_path / "out") is None
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_stays(repository: Path, tmp_path: Path, there: bool) -> None:
    (tmp_path / "disk").mkdir()
    out, place = tmp_path / "out", tmp_path / "disk" / "migrated"
    if there:
        place.mkdir()
    out.symlink_to(place)
    for _ in range(2):
        write(repository, out)
        assert (place / "evaluate.py").read_bytes() == b"after\r\n"
        assert out.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "out", "repository"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["migrated"]


def test_where_nothing_can_be_put_is_told_before_anything_is_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MigrateError, match="evaluate.py is a file; name another folder"):
        check_output(repository, repository / "evaluate.py" / "out")
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda self: self.name == "out")
    with pytest.raises(MigrateError, match="a disk is mounted there, whose place nothing can take; name a folder in it"):
        check_output(repository, tmp_path / "out")
    check_output(repository, tmp_path / "out" / "inner")
    for name, remedy in (("/proc/fs", "name a folder in it"), ("/proc/other/deep", "name another folder")):
        with pytest.raises(MigrateError, match=rf"nothing can be written in /proc \(.+\); {remedy}"):
            check_output(repository, Path(name))


def test_what_changed_since_it_was_read_is_not_written_as_proved(repository: Path, tmp_path: Path) -> None:
    """Whether a rule changes the file or not: what was run and packaged was made of the former one."""
    out, read = (
        tmp_path / "out",
        [SourceFile("evaluate.py", b"before\r\n"), SourceFile("net.py", b"net"), SourceFile("big.py", b"")],
    )

    def act() -> None:
        write_output(repository, out, [CHANGE], models=None, report=lambda _: {"schema": 1}, read=read)

    for edit, named in (
        (lambda: (repository / "net.py").write_bytes(b"net, edited"), "net.py"),
        ((repository / "net.py").unlink, "net.py"),
        (lambda: (repository / "evaluate.py").write_bytes(b"before\r\n# edited"), "evaluate.py"),
    ):
        (repository / "net.py").write_bytes(b"net")
        act()
        edit()
        with pytest.raises(MigrateError, match=f"^{named} changed while the repository was migrated.*run headrace"):
            act()
        assert (out / "net.py").read_bytes() == b"net"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]
