"""Where the cache is, and that what is made of different repositories does not meet there."""

from pathlib import Path

import pytest

from headrace.runtime.base.cache_folder import cache_folder, prepared_folder


@pytest.mark.parametrize(
    ("named", "found"), [("/some/where", Path("/some/where")), ("off", None), ("OFF", None), ("", None), ("0", None)]
)
def test_the_variable_names_it_or_turns_it_off(monkeypatch, named, found):
    monkeypatch.setenv("HEADRACE_CACHE", named)
    assert cache_folder() == found


def test_without_one_it_is_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADRACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headrace"


def test_repositories_of_one_name_have_folders_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first, second = prepared_folder(tmp_path / "a" / "net"), prepared_folder(tmp_path / "b" / "net")
    assert first != second
    assert first.parent == tmp_path / "prepared"
    assert prepared_folder(tmp_path / "link" / "net") == first
    monkeypatch.setenv("HEADRACE_CACHE", "off")
    assert prepared_folder(tmp_path) is None
