import os
import shutil

import pytest

from headrace.migrate.stages import kept_copy
from headrace.migrate.stages.copy_tree import copy_tree
from headrace.migrate.stages.kept_copy import KeptCopy


@pytest.fixture
def copied(tmp_path):
    source, place = tmp_path / "source", tmp_path / "place"
    (source / "data" / "deep").mkdir(parents=True)
    (source / "empty").mkdir()
    for name in ("main.py", "data/a.txt", "data/deep/b.txt"):
        (source / name).write_text(name)
    (source / "link").symlink_to("main.py")
    copy_tree(source, place)
    return source, place, KeptCopy(source, place)


def content(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        held = os.readlink(path) if kind == "link" else path.read_text() if kind == "file" else ""
        found[path.relative_to(folder).as_posix()] = kind, held
    return found


def test_whatever_a_run_did_is_undone_and_the_rest_is_not_copied(copied, tmp_path, monkeypatch):
    _, place, kept = copied
    before, again = content(place), []
    copy = kept_copy.copy_file
    monkeypatch.setattr(kept_copy, "copy_file", lambda path, to: (again.append(path.name), copy(path, to)))
    assert kept.restore()
    assert again == []
    times = (place / "main.py").stat()
    (place / "main.py").write_text("MAIN.py")  # as long as before
    os.utime(place / "main.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    (place / "new").mkdir()
    (place / "new" / "x").write_text("x")
    (place / "empty").rmdir()
    (place / "link").unlink()
    (place / "link").symlink_to(tmp_path)
    assert kept.restore()
    assert content(place) == before
    assert again == ["main.py"]
    assert kept.restore()
    assert again == ["main.py"]  # what was copied again is known


def test_a_link_in_place_of_a_folder_is_not_followed(copied, tmp_path):
    _, place, kept = copied
    before = content(place)
    other = tmp_path / "other"
    (other / "deep").mkdir(parents=True)
    (other / "a.txt").write_text("mine")
    shutil.rmtree(place / "data")
    (place / "data").symlink_to(other)
    assert kept.restore()
    assert content(place) == before
    assert (other / "a.txt").read_text() == "mine"
    assert not (other / "deep" / "b.txt").exists()


def test_what_is_gone_from_both_takes_a_new_copy(copied):
    source, place, kept = copied
    (source / "main.py").unlink()
    (place / "main.py").unlink()
    assert not kept.restore()
