"""The growth of folders, as a disk sees it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from headrace.migrate.proving.disk_use import DiskUse
from headrace.scratch import remove_tree


def test_growth_counts_once_what_was_added(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "old").write_bytes(bytes(2**20))
    use = DiskUse([tmp_path, inner])
    assert use.folders == [tmp_path.resolve()]
    assert use.growth((), now=True) == 0
    (inner / "new").write_bytes(bytes(2**20))
    os.link(inner / "new", tmp_path / "again")
    (tmp_path / "elsewhere").symlink_to("/usr")
    assert 2**20 <= use.growth((), now=True) < 2**20 + 2**16
    (inner / "old").unlink()
    assert use.growth((), now=True) < 2**16


def test_deleted_files_that_are_open_count(tmp_path: Path) -> None:
    use = DiskUse([tmp_path])
    (tmp_path / "kept").touch()
    with (tmp_path / "gone").open("wb") as file:
        file.write(bytes(2**21))
        file.flush()
        (tmp_path / "gone").unlink()
        assert use.growth((), now=True) < 2**16
        assert use.growth([psutil.Process()], now=True) >= 2**21


def test_what_lies_deeper_than_a_path_may_be_long_counts(tmp_path: Path) -> None:
    """A program goes down folder by folder and writes there; no path leads to that from outside."""
    # Others on this disk may have removed some meanwhile.
    assert any(_grown_by_hidden(tmp_path / str(number)) > 2**25 for number in range(3))


def _grown_by_hidden(folder: Path) -> int:
    folder.mkdir()
    use = DiskUse([folder])
    here = os.open(folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    file = os.open("hidden", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    for _ in range(64):
        os.write(file, os.urandom(2**20))
    os.fsync(file)
    os.close(file)
    os.close(here)
    growth = use.growth((), now=True)
    remove_tree(folder / ("d" * 200))
    return growth


def test_room_is_no_more_than_the_disk_has(tmp_path: Path) -> None:
    use = DiskUse([tmp_path])
    assert use.allowance(1000) == 1000
    assert use.allowance(2**62) < shutil.disk_usage(tmp_path).free
