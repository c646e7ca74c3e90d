import io
import os
import sys

import pytest

from headrace.errors import InputError
from headrace.serving.predict.config import PredictConfig
from headrace.serving.predict.images import Named, named_images

CONFIG = PredictConfig(max_image_bytes=100)


@pytest.fixture
def root(tmp_path, monkeypatch):
    for name in ("a.png", "sub/b.JPG", "sub/.hidden.png", "sub/note.txt", "sub/deep/c.webp", "odd[1].png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "none").mkdir()
    os.mkfifo(tmp_path / "sub" / "pipe.png")
    (tmp_path / "sub" / "loop.png").symlink_to("loop.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*given):
    return [item.name if item.error is None else item.error for item in named_images(given)]


def test_folders_patterns_and_files(root):
    unread = ["sub/loop.png", "sub/pipe.png"]  # say so when they are read
    assert names("sub") == ["sub/b.JPG", "sub/deep/c.webp", *unread]
    assert names("*.png") == ["a.png", "odd[1].png"]
    assert names("**/*") == ["a.png", "odd[1].png", "sub/b.JPG", "sub/deep/c.webp", *unread]
    assert names("odd[1].png") == ["odd[1].png"]  # it is there: no pattern
    assert names("sub/note.txt", "a.png", "a.png") == ["sub/note.txt", "a.png", "a.png"]  # as they were named
    assert names("-", "http://host/a.png") == ["-", "http://host/a.png"]


def test_images_of_formats_that_are_not_read_are_not_passed_over(root):
    for name in ("scan.TIFF", "phone.heic", "film.mp4"):
        (root / "none" / name).write_bytes(b"")
    assert names("none") == ["none/phone.heic", "none/scan.TIFF"]
    assert names("none/*") == ["none/phone.heic", "none/scan.TIFF"]


def test_what_stands_for_nothing_says_so(root):
    assert names("none")[0].startswith("the folder holds no images")
    assert names("*.gif") == ["no image matches the pattern"]
    (missing,) = named_images(["missing.png"])
    with pytest.raises(InputError, match="No such file"):
        missing.read(CONFIG)
    (loop,) = named_images(["sub/loop.png"])
    with pytest.raises(InputError, match="cannot be read"):
        loop.read(CONFIG)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read_says_so(root):
    (root / "sub").chmod(0)
    try:
        assert "Permission denied" in names("sub")[0]
    finally:
        (root / "sub").chmod(0o700)


def test_the_standard_input_is_bounded(monkeypatch):
    for data, says in ((b"x" * 100, None), (b"x" * 101, "more than 100 bytes")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        if says is None:
            assert Named(name="-").read(CONFIG) == data
        else:
            with pytest.raises(InputError, match=says):
                Named(name="-").read(CONFIG)


@pytest.mark.parametrize("address", ["ftp://host/a.png", "file:///etc/passwd", "s3://bucket/a.png", "http:///a.png"])
def test_other_schemes_are_refused(address):
    (named,) = named_images([address])
    with pytest.raises(InputError, match=r"http|no host"):
        named.read(CONFIG)
