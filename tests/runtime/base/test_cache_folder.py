"""Where the cache is."""

import os
from pathlib import Path

import pytest

from headrace.runtime.base.cache_folder import cache_folder, check_own, own_folder


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


def test_a_folder_of_one_s_own_is_made_and_closed_to_others(tmp_path):
    place = own_folder(tmp_path / "cache" / "named")
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)  # as an earlier version left it
    assert own_folder(place).stat().st_mode & 0o777 == 0o700


def test_what_somebody_else_may_have_put_there_is_not_taken(tmp_path, monkeypatch):
    """Another user's folder in a cache that everybody may write, and a link to anywhere."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="a link, or belongs to another user"):
        own_folder(tmp_path / "link")
    someone = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: someone)
    for check in (own_folder, check_own):
        with pytest.raises(PermissionError, match="belongs to another user"):
            check(tmp_path / "theirs")
