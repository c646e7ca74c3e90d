"""Trust is given by word only: by the flag, or by a variable that says exactly 1. Files are this user's own."""

import os
import socket

import pytest

from headrace.trust import VARIABLE, check_own, is_trusted, open_regular, own_folder


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


def test_a_file_is_read_through_a_link_unless_that_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"
    with open_regular(tmp_path / "file", links=False) as file:
        assert file.read() == b"content"
    with pytest.raises(OSError, match="link"):
        open_regular(tmp_path / "link", links=False)


@pytest.mark.parametrize("links", [True, False])
def test_nothing_else_is_opened_or_waited_for(tmp_path, links, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    bound = socket.socket(socket.AF_UNIX)
    bound.bind("socket")
    for name, error in (("pipe", "not a regular file"), ("folder", "a folder"), ("socket", "."), ("nothing", "No such file")):
        with pytest.raises(OSError, match=error):
            open_regular(tmp_path / name, links=links)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "/dev/zero", links=links)
    bound.close()
