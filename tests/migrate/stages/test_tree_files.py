"""Files below a root are reached without following anything that stands in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.stages.tree_files import TreeFiles, checked


@pytest.mark.parametrize(
    "path",
    ["/etc/hostname", "../x", "a/../../x", "a//b", ".", "", "./a", "a\0b", ".git/config", "a/.GIT/hooks/x", "GIT~1/config"],
)
def test_paths_that_name_nothing_of_ours(path: str) -> None:
    with pytest.raises(MigrateError, match="writes nothing"):
        checked(path)


@pytest.mark.parametrize("path", ["a.py", "a/b.py", ".github/x.py", "git/x.py", "...", "a/..b"])
def test_paths_that_may_be_written(path: str) -> None:
    assert str(checked(path)) == path


def test_what_is_staged_has_the_attributes_and_is_put_at_once(tmp_path: Path) -> None:
    tree, file = TreeFiles(tmp_path), tmp_path / "a/b.py"
    file.parent.mkdir()
    file.write_bytes(b"old")
    file.chmod(0o754)
    os.utime(file, ns=(5, 7))
    kept = tmp_path / "kept"
    assert tree.keep("a/b.py", kept) == b"old"
    assert (kept.stat().st_mode & 0o777, kept.stat().st_mtime_ns) == (0o754, 7)
    tree.stage("a/b.py", "aside", b"new")
    assert tree.read("a/b.py") == b"old"
    tree.put("a/b.py", "aside")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o754)
    assert file.stat().st_mtime_ns > 7
    tree.stage("a/b.py", "aside", b"old", like=kept)
    tree.put("a/b.py", "aside")
    assert (file.stat().st_mtime_ns, sorted(os.listdir(file.parent))) == (7, ["b.py"])


def test_what_was_staged_is_dropped_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    tree = TreeFiles(tmp_path)
    tree.stage("a.py", "aside", b"x")
    with pytest.raises(FileExistsError):
        tree.stage("a.py", "aside", b"y")
    tree.drop("a.py", "aside")
    tree.drop("a.py", "aside")
    assert os.listdir(tmp_path) == ["a.py"]


@pytest.mark.parametrize("kind", ["link", "folder of links", "pipe", "folder", "nothing"])
def test_what_is_no_plain_file_is_neither_read_nor_kept(tmp_path: Path, kind: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "x.py").write_text("secret")
    path = "x.py"
    if kind == "link":
        (root / path).symlink_to(outside / path)
    elif kind == "folder of links":
        path = "pkg/x.py"
        (root / "pkg").symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(root / path)
    elif kind == "folder":
        (root / path).mkdir()
    assert TreeFiles(root).read(path) is None
    with pytest.raises(OSError, match="x.py|pkg"):
        TreeFiles(root).keep(path, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
