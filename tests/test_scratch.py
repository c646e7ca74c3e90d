"""Temporary folders go away, whatever is in them: at the end, with their object, by the next command after a kill."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headrace import scratch
from headrace.scratch import ScratchFolder, locked, remove_tree
from tests.as_user import AS_USER

HOLD = """
import sys, time
from headrace.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "model").mkdir()
(folder.path / "model" / "weights").write_text("...")
print(folder.path, flush=True)
time.sleep(600)
"""
REMOVE = (
    AS_USER
    + """
from headrace.scratch import remove_tree
root, target = Path(sys.argv[1]), Path(sys.argv[2])
remove_tree(root)
print(json.dumps({"left": root.exists(), "mode": stat.S_IMODE(target.stat().st_mode)}))
"""
)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files of the test's own, where every folder counts as old enough to be left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_LOOKED", set())
    monkeypatch.setattr(scratch, "_JUST_MADE", -1.0)
    return tmp_path


def test_a_folder_lasts_as_long_as_its_block_or_its_object(temporary):
    with ScratchFolder() as folder:
        (folder / "file").write_text("x")
        assert folder.parent.parent == temporary
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    held = ScratchFolder()
    assert os.listdir(temporary) == [held.path.parent.name]
    held.cleanup()
    held.cleanup()
    dropped = ScratchFolder()
    assert dropped.path.is_dir()
    del dropped
    assert os.listdir(temporary) == []


def test_a_folder_is_locked_through_a_link_to_it_too(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    with locked(tmp_path / "link"), pytest.raises(BlockingIOError), locked(tmp_path / "folder", wait=False):
        pass
    with locked(tmp_path / "folder", wait=False):
        pass


def test_what_is_placed_in_a_folder_may_lock_it(temporary):
    with ScratchFolder() as folder:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGABRT])
def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_has_stays(temporary, monkeypatch, ended_by):
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment) as holding:
        folder = Path(holding.stdout.readline().strip())
        ScratchFolder().cleanup()
        assert (folder / "model" / "weights").is_file()
        holding.send_signal(ended_by)
    assert (folder / "model" / "weights").is_file()
    monkeypatch.setattr(scratch, "_LOOKED", set())
    ScratchFolder().cleanup()
    assert os.listdir(temporary) == []


def test_nobody_else_s_folder_is_removed(temporary, monkeypatch):
    """A user's own folders, links, files, and such that were made a moment ago or belong to somebody else."""
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("x")
    for name in ("headrace-projects", "headrace-scratch-of_mine", "headrace-scratch-12345678.old", "headrace-triton-abcdefgh"):
        (temporary / name).mkdir()
    (temporary / "headrace-scratch-of_mine").rename(temporary / "headrace-scratch-of_mine_too")
    (temporary / "headrace-scratch-linked00").symlink_to(elsewhere)
    (temporary / "headrace-scratch-afile000").write_text("x")
    before = sorted(os.listdir(temporary))
    ScratchFolder().cleanup()
    assert sorted(os.listdir(temporary)) == before
    assert (elsewhere / "kept").is_file()
    (temporary / "headrace-scratch-12345678").mkdir()
    someone = os.getuid() + 1
    for module, name, value in ((scratch, "_JUST_MADE", 60.0), (os, "getuid", lambda: someone)):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            changed.setattr(scratch, "_LOOKED", set())
            ScratchFolder().cleanup()
        assert (temporary / "headrace-scratch-12345678").is_dir()


def test_a_fork_of_the_process_leaves_the_folder_alone(temporary):
    held = ScratchFolder()
    if (child := os.fork()) == 0:
        held.cleanup()
        os._exit(0)
    os.waitpid(child, 0)
    assert held.path.is_dir()
    held.cleanup()
    assert not held.path.exists()


def test_no_depth_is_too_much(tmp_path):
    """Deeper than paths may be long, and than Python recurses; with files that have the names of others on the way up."""
    root = tmp_path / "deep"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for depth in range(3000):
        os.mkdir("d", dir_fd=here)
        if depth % 500 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(root)
    assert not root.exists()
    remove_tree(root)  # nothing is there any more


def test_closed_folders_are_removed_and_what_links_in_them_lead_to_keeps_its_rights(tmp_path):
    """Python's own TemporaryDirectory gave the target of such a link other rights (CVE-2023-6597, in 3.11 before 3.11.8)."""
    target = tmp_path / "private.txt"
    target.write_text("x")
    target.chmod(0o604)
    root = tmp_path / "left"
    (root / "inner" / "more").mkdir(parents=True)
    (root / "inner" / "more" / "file").write_text("x")
    (root / "inner" / "link").symlink_to(target)
    (root / "inner" / "folder").symlink_to(tmp_path)
    for folder in (root / "inner" / "more", root / "inner", root):
        folder.chmod(0o000 if folder != root else 0o500)
    done = subprocess.run([sys.executable, "-c", REMOVE, str(root), str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"left": False, "mode": 0o604}
