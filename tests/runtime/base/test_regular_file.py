"""Files of folders that others wrote."""

import os
import socket

import pytest

from headrace.runtime.base.regular_file import open_regular


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
