"""Trust is given by word only: by the flag, or by a variable that says exactly 1. Files are this user's own."""

import os

import pytest

from headrace.trust import VARIABLE, check_own, is_trusted, own_folder


@pytest.mark.parametrize(("value", "trusted"), [(None, False), ("", False), ("0", False), ("true", False), ("1", True)])
def test_the_variable_says_one(monkeypatch: pytest.MonkeyPatch, value: str | None, trusted: bool) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert is_trusted() is trusted
    assert is_trusted(True)


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
