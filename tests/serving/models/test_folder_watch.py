"""What changed in a models folder is reported once, and only when it stays as it is."""

import pytest

from headrace.serving.models.folder_watch import FolderWatch


def _write(root, name, text="a"):
    (root / name / "1").mkdir(parents=True, exist_ok=True)
    (root / name / "config.pbtxt").write_text(f'name: "{name}"')
    (root / name / "1" / "model").write_text(text)


def test_changes_are_reported_once(tmp_path):
    _write(tmp_path, "a")
    _write(tmp_path, "b")
    watch = FolderWatch(tmp_path)
    assert watch.changes(lambda: None) == (set(), set())
    _write(tmp_path, "b", "longer")
    _write(tmp_path, "c")
    (tmp_path / "a").rename(tmp_path / ".a")
    assert watch.changes(lambda: None) == ({"a", "b", "c"}, set())
    assert watch.changes(lambda: None) == (set(), set())


def test_what_is_still_being_written_waits_for_a_later_look(tmp_path):
    _write(tmp_path, "a")
    _write(tmp_path, "b")
    watch = FolderWatch(tmp_path)
    _write(tmp_path, "a", "half")
    _write(tmp_path, "b", "whole")
    assert watch.changes(lambda: _write(tmp_path, "a", "half more")) == ({"b"}, {"a"})
    assert watch.changes(lambda: None) == ({"a"}, set())
    assert watch.changes(lambda: None) == (set(), set())


def test_what_is_no_model_does_not_matter(tmp_path):
    _write(tmp_path, "a")
    watch = FolderWatch(tmp_path)
    _write(tmp_path, ".headrace-new-12-a")
    _write(tmp_path, "no model", "b")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("x")
    assert watch.changes(lambda: None) == (set(), set())


def test_a_folder_that_cannot_be_read_is_an_error_and_forgets_nothing(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    _write(root, "a")
    watch = FolderWatch(root)
    root.rename(tmp_path / "away")
    with pytest.raises(OSError, match="models"):
        watch.changes(lambda: None)
    (tmp_path / "away").rename(root)
    assert watch.changes(lambda: None) == (set(), set())
