"""Files written in place are all old or all new whenever the process ends, and are given back byte for byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.stages.journal import interrupted, journal_folder, recover, undo, write_in_place

ROOT = Path(__file__).parents[3]
OLD = {"evaluate.py": b"before\r\n", "pkg/model.py": "é = 1\n".encode("latin-1"), "predict.py": b"p"}
NEW = {"evaluate.py": b"after\r\n", "pkg/model.py": b"import headrace\n", "predict.py": b"q"}
CHANGES = [Change(path, OLD[path], NEW[path], ["PS201"], []) for path in OLD]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    fill(root)
    return root


def fill(root: Path) -> None:
    (root / "pkg").mkdir(parents=True)
    for path, data in OLD.items():
        (root / path).write_bytes(data)
        os.utime(root / path, ns=(10**18 + 1, 10**18 + 7))
    (root / "evaluate.py").chmod(0o755)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def unfinished(root: Path) -> None:
    """The last write as if it had been interrupted after its last file."""
    (journal_folder(root) / "0001/done").unlink()


def models(tmp_path: Path, content: bytes = b"onnx") -> Path:
    folder = tmp_path / "scratch-models"
    (folder / "net/1").mkdir(parents=True, exist_ok=True)
    (folder / "net/1/model.onnx").write_bytes(content)
    return folder


def held(root: Path) -> dict[str, bytes]:
    return {path: (root / path).read_bytes() for path in OLD}


def everything(root: Path) -> dict[str, tuple[bytes, int, int]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns) for path in files
    }


def test_undo_gives_back_bytes_modes_and_times_and_leaves_nothing(root: Path, tmp_path: Path) -> None:
    before = everything(root)
    assert write_in_place(root, CHANGES, models(tmp_path)) == list(OLD)
    assert held(root) == NEW
    assert (root / "evaluate.py").stat().st_mode & 0o777 == 0o755
    assert (root / ".headrace/models/net/1/model.onnx").read_bytes() == b"onnx"
    assert sorted(path.name for path in (root / ".headrace").iterdir()) == [".gitignore", "models"]
    assert (root / ".headrace/.gitignore").read_text() == "*\n"
    assert sorted(undo(root)) == sorted(OLD)
    assert everything(root) == before
    assert not (root / ".headrace").exists()


def test_two_writes_are_undone_one_after_the_other(root: Path, tmp_path: Path) -> None:
    write_in_place(root, CHANGES, models(tmp_path, b"first"))
    again = [Change("predict.py", b"q", b"r", ["PS202"], [])]
    write_in_place(root, again, models(tmp_path, b"second"))
    assert (root / ".headrace/models/net/1/model.onnx").read_bytes() == b"second"
    assert undo(root) == ["predict.py"]
    assert held(root) == NEW
    assert (root / ".headrace/models/net/1/model.onnx").read_bytes() == b"first"
    undo(root)
    assert held(root) == OLD
    with pytest.raises(MigrateError, match="nothing to undo"):
        undo(root)


@pytest.mark.parametrize("changed", ["edited", "deleted", "a link"])
def test_undo_refuses_and_names_what_changed_since(root: Path, changed: str) -> None:
    write_in_place(root, CHANGES)
    if changed == "edited":
        (root / "pkg/model.py").write_bytes(b"mine")
    else:
        (root / "pkg/model.py").unlink()
    if changed == "a link":
        (root / "pkg/model.py").symlink_to(root / "predict.py")
    with pytest.raises(MigrateError, match=r"since headrace migrate --write: pkg/model\.py;"):
        undo(root)
    assert (root / "evaluate.py").read_bytes() == NEW["evaluate.py"]
    assert (root / "predict.py").read_bytes() == NEW["predict.py"]


def test_what_changed_while_it_was_migrated_is_not_overwritten(root: Path) -> None:
    (root / "predict.py").write_bytes(b"mine")
    with pytest.raises(MigrateError, match=r"changed while they were migrated: predict\.py"):
        write_in_place(root, CHANGES)
    assert held(root) == {**OLD, "predict.py": b"mine"}
    assert not (root / ".headrace").exists()


def test_links_are_followed_inside_the_repository_and_refused_out_of_it(root: Path, tmp_path: Path) -> None:
    (root / "link.py").symlink_to("predict.py")
    assert write_in_place(root, [Change("link.py", b"p", b"q", ["PS202"], []), *CHANGES]).count("predict.py") == 1
    assert (root / "link.py").is_symlink()
    assert (root / "link.py").read_bytes() == b"q"
    undo(root)
    outside = tmp_path / "precious.py"
    outside.write_bytes(b"p")
    (root / "link.py").unlink()
    (root / "link.py").symlink_to(outside)
    with pytest.raises(MigrateError, match="out of the repository"):
        write_in_place(root, [*CHANGES, Change("link.py", b"p", b"q", ["PS202"], [])])
    assert outside.read_bytes() == b"p"
    assert held(root) == OLD


def in_a_process(action, end_at: int, sent: signal.Signals) -> int | None:
    """Run `action` in a forked process that gets a signal at its n-th file operation; None when it had fewer."""
    child = os.fork()
    if child == 0:
        count = 0

        def audit(event: str, _arguments: tuple) -> None:
            nonlocal count
            if event in (
                "open",
                "os.rename",
                "os.mkdir",
                "os.remove",
                "os.rmdir",
                "os.utime",
                "os.chmod",
                "os.chown",
                "os.scandir",
            ):
                count += 1
                if count == end_at:
                    os.kill(os.getpid(), sent)

        status = 77
        try:
            sys.addaudithook(audit)
            action()
            status = 0 if count < end_at else 78
        except KeyboardInterrupt:
            status = 78
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    assert ended in (0, 78, signal.SIGKILL), f"ended with {ended} at operation {end_at}"
    return None if ended == 0 else ended


def every_moment(tmp_path: Path, sent: signal.Signals, prepare, action, check) -> int:
    for moment in range(1, 1000, int(os.environ["HEADRACE_TEST_EVERY"])):
        root = tmp_path / f"at-{moment}"
        fill(root)
        prepare(root)
        if in_a_process(lambda root=root: action(root), moment, sent) is None:
            return moment
        check(root)
    raise AssertionError("the action never came to its end")


def old_or_new(root: Path) -> None:
    recover(root)
    assert interrupted(root) == []
    now = held(root)
    assert now in (OLD, NEW), now
    if now == NEW:
        undo(root)
        assert held(root) == OLD
    assert everything(root).keys() == OLD.keys(), "recovery leaves nothing of its own behind"


def killed_in_a_write(tmp_path: Path) -> None:
    folder = models(tmp_path)
    count = every_moment(
        tmp_path, signal.SIGKILL, lambda root: None, lambda root: write_in_place(root, CHANGES, folder), old_or_new
    )
    assert count > 40, "the signal fell on every step of the way"


def interrupted_in_a_write(tmp_path: Path) -> None:
    folder = models(tmp_path)

    def check(root: Path) -> None:
        assert held(root) in (OLD, NEW), "SIGINT leaves time to put things in order at once"
        old_or_new(root)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        count = every_moment(
            tmp_path, signal.SIGINT, lambda root: None, lambda root: write_in_place(root, CHANGES, folder), check
        )
    finally:
        signal.signal(signal.SIGINT, handler)
    assert count > 40


def killed_in_an_undo(tmp_path: Path) -> None:
    folder = models(tmp_path)
    count = every_moment(tmp_path, signal.SIGKILL, lambda root: write_in_place(root, CHANGES, folder), undo, old_or_new)
    assert count > 10


def killed_in_a_recovery(tmp_path: Path) -> None:
    def half_written(root: Path) -> None:
        write_in_place(root, CHANGES)
        unfinished(root)
        (root / "predict.py").write_bytes(OLD["predict.py"])

    assert every_moment(tmp_path, signal.SIGKILL, half_written, recover, old_or_new) > 8


def killed_in_a_second_write(tmp_path: Path) -> None:
    first, second = models(tmp_path / "first", b"first"), models(tmp_path / "second", b"second")
    again = [Change("predict.py", b"q", b"r", ["PS202"], [])]

    def check(root: Path) -> None:
        recover(root)
        if (root / "predict.py").read_bytes() == b"r":
            assert (root / ".headrace/models/net/1/model.onnx").read_bytes() == b"second"
            undo(root)
        assert held(root) == NEW
        assert (root / ".headrace/models/net/1/model.onnx").read_bytes() == b"first"
        old_or_new(root)

    def prepare(root: Path) -> None:
        write_in_place(root, CHANGES, first)

    assert every_moment(tmp_path, signal.SIGKILL, prepare, lambda root: write_in_place(root, again, second), check) > 30


MOMENTS = (killed_in_a_write, interrupted_in_a_write, killed_in_an_undo, killed_in_a_recovery, killed_in_a_second_write)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("moments", MOMENTS)
def test_ended_at_any_moment(moments: Callable[[Path], None], every: int) -> None:
    """In a process with nothing but the journal, and in memory where there is such a folder: a hundred times it is forked, and
    a thousand times it waits for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        code = f"import pathlib, sys; from {__name__} import {moments.__name__} as run; run(pathlib.Path(sys.argv[1]))"
        environment = {**os.environ, "XDG_STATE_HOME": f"{folder}/state", "HEADRACE_TEST_EVERY": str(every)}
        command = [sys.executable, "-c", code, folder]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_interrupted_write_whose_files_the_user_changed_is_told(root: Path) -> None:
    write_in_place(root, CHANGES)
    unfinished(root)
    (root / "predict.py").write_bytes(b"mine")
    with pytest.raises(MigrateError, match=r"changed since: predict\.py; their old bytes are in .*before"):
        recover(root)
    assert held(root) == {**NEW, "predict.py": b"mine"}


def test_a_write_and_an_undo_finish_what_an_earlier_write_left(root: Path) -> None:
    write_in_place(root, CHANGES)
    unfinished(root)
    assert sorted(interrupted(root)) == sorted(OLD)
    assert held(root) == NEW, "looking changes nothing"
    assert sorted(undo(root)) == sorted(OLD)
    assert held(root) == OLD
    write_in_place(root, CHANGES)
    unfinished(root)
    assert sorted(recover(root)) == sorted(OLD)
    write_in_place(root, CHANGES)
    assert held(root) == NEW
    undo(root)
    with pytest.raises(MigrateError, match="nothing to undo"):
        undo(root)


@pytest.mark.parametrize("named", ["state", ""])
def test_no_journal_no_change(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / named) if named else "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for place in (tmp_path / "state", tmp_path / "home"):
        place.write_text("a file in the way")
    with pytest.raises(MigrateError, match="cannot keep a journal in .*XDG_STATE_HOME"):
        write_in_place(root, CHANGES)
    assert held(root) == OLD


def test_two_writers_take_turns(root: Path) -> None:
    import fcntl

    write_in_place(root, CHANGES)
    with (journal_folder(root) / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(MigrateError, match="another headrace is writing"):
            undo(root)
    undo(root)
