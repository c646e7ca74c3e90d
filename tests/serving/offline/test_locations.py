"""Files of an object store: what fails once is tried again, what is not there is not, and nothing waits without end."""

import contextlib
import errno
import http.server
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from headrace.errors import ClassifyError
from headrace.serving.offline import locations
from headrace.serving.offline.locations import (
    Presence,
    UnreadableError,
    describe,
    is_folder,
    open_file,
    raise_if_lost,
    read_file,
    walk,
)
from headrace.serving.offline.sources import parquet_images, tar_images


class Flaky(MemoryFileSystem):
    """Fails as often as it was told to."""

    protocol = "flaky"
    store = {}  # noqa: RUF012 - as in the base class, which shares its files
    pseudo_dirs = [""]  # noqa: RUF012
    failures = 0

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("flaky://"))

    def unstrip_protocol(self, name):
        return f"flaky://{name.lstrip('/')}"

    def _open(self, path, mode="rb", **options):
        if mode == "rb" and Flaky.failures:
            Flaky.failures -= 1
            raise ConnectionResetError("the store hung up")
        return super()._open(path, mode, **options)


@pytest.fixture
def store(monkeypatch):
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr(locations, "_PAUSES", (0.0, 0.0, 0.0))
    Flaky.failures = 0
    system = fsspec.filesystem("flaky")
    system.pipe("/b/one.jpg", b"one")
    system.pipe("/b/sub/.hidden/two.jpg", b"two")
    system.pipe("/b/sub/two.jpg", b"two")
    return system


def test_what_fails_is_tried_again_some_times(store):
    Flaky.failures = 3
    assert read_file("flaky://b/one.jpg", 10) == b"one"
    Flaky.failures = 4
    with pytest.raises(UnreadableError, match="the store hung up"):
        read_file("flaky://b/one.jpg", 10)
    assert Flaky.failures == 0


def test_what_is_not_there_or_too_large_is_not_tried_again(store, monkeypatch):
    monkeypatch.setattr(locations.time, "sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(UnreadableError, match="No such file"):
        read_file("flaky://b/none.jpg", 10)
    with pytest.raises(UnreadableError, match="more than 2 bytes"):
        read_file("flaky://b/one.jpg", 2)


class Answers(http.server.BaseHTTPRequestHandler):
    """404, or so many failures and then the file."""

    failures = 0

    def do_GET(self):
        if self.path == "/none.jpg":
            status = 404
        elif Answers.failures:
            Answers.failures -= 1
            status = 503
        else:
            status = 200
        self.send_response(status)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"one")

    def log_message(self, *_):
        """Into no test's output."""


def test_a_host_that_fails_is_not_taken_for_a_file_that_is_not_there(monkeypatch):
    """fsspec raises FileNotFoundError for all of these."""
    pytest.importorskip("aiohttp")
    waited = []
    monkeypatch.setattr(locations.time, "sleep", waited.append)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            Answers.failures = 2
            assert read_file(f"{address}/one.jpg", 10) == b"one"
            assert waited
            waited.clear()
            with pytest.raises(UnreadableError, match="No such file"):
                read_file(f"{address}/none.jpg", 10)
            assert waited == []
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(UnreadableError, match="onnect"):
        read_file(f"{address}/one.jpg", 10)
    assert len(waited) == 3
    with pytest.raises(ClassifyError, match="nothing can be read now"):
        list(tar_images(f"{address}/a.tar", "a.tar", (".jpg",), 10))


def test_a_store_is_walked_as_a_folder_is(store):
    assert is_folder("flaky://b")
    assert not is_folder("flaky://b/one.jpg")
    found = list(walk("flaky://b"))
    assert [(item.name, item.size) for item in found] == [("one.jpg", 3), ("sub/two.jpg", 3)]
    assert all(item.stamp for item in found)
    assert open_file(found[1].location).read() == b"two"
    store.pipe("/b/one.jpg", b"uno")
    assert next(walk("flaky://b")).stamp != found[0].stamp


def test_what_cannot_be_looked_at_is_said_later(store):
    assert describe("flaky://b/none.jpg", "none.jpg").size == -1
    assert describe("/no/such/file.jpg", "file.jpg").size == -1


@pytest.mark.parametrize(
    ("address", "says"), [("nostore://b", "cannot open nostore://b"), ("flaky://none/x", "there is nothing at flaky://none/x")]
)
def test_addresses_that_lead_nowhere_are_said(store, address, says):
    with pytest.raises(ClassifyError, match=says):
        is_folder(address)


def test_a_store_that_cannot_be_reached_any_more_is_told(store, monkeypatch):
    presence = Presence("flaky://b", "flaky://b")
    presence.check()

    def hang_up(self, path, **options):
        raise ConnectionResetError("the store hung up")

    with monkeypatch.context() as patch:
        patch.setattr(Flaky, "exists", hang_up)
        with pytest.raises(
            ClassifyError, match="flaky://b cannot be reached any more: ConnectionResetError: the store hung up; the same"
        ):
            presence.check()
    presence.check()
    store.rm("/b", recursive=True)
    with pytest.raises(ClassifyError, match="flaky://b is gone"):
        presence.check()


def test_a_file_that_is_a_source_is_there_or_not(tmp_path):
    source = tmp_path / "all.tar"
    source.write_bytes(b"")
    with contextlib.closing(Presence(str(source), str(tmp_path))) as presence:
        presence.check()
        source.rename(tmp_path / "other.tar")
        with pytest.raises(ClassifyError, match="all.tar is gone"):
            presence.check()


def test_a_folder_is_known_again_after_a_while_elsewhere(tmp_path):
    source, moved = tmp_path / "photos", tmp_path / "moved"
    source.mkdir()
    with contextlib.closing(Presence(str(source), str(source))) as presence:
        source.rename(moved)
        source.mkdir()
        with pytest.raises(ClassifyError, match="photos is gone, or something else is in its place"):
            presence.check()
        source.rmdir()
        moved.rename(source)
        presence.check()
    with pytest.raises(ClassifyError, match="cannot read .*none: No such file"):
        Presence(str(tmp_path / "none"), str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("error", "location", "archive", "ends"),
    [
        (OSError(errno.EMFILE, "x"), "/a.jpg", False, True),
        (OSError(errno.EMFILE, "x"), "s3://b/a.jpg", False, True),
        (OSError(errno.ESTALE, "x"), "/a.jpg", False, True),
        (OSError(errno.ENOENT, "x"), "/a.jpg", False, False),
        (OSError(errno.EIO, "x"), "/a.jpg", False, False),  # a sector, or more: the source is looked at
        (ConnectionRefusedError("x"), "https://b/a.jpg", False, False),
        (ConnectionResetError("x"), "https://b/a.tar", True, True),
        (TimeoutError("x"), "s3://b/a.tar", True, True),
        (EOFError("x"), "s3://b/a.tar", True, False),
        (None, "/a.tar", True, False),
    ],
)
def test_what_is_not_a_files_fault(error, location, archive, ends):
    if ends:
        with pytest.raises(ClassifyError, match=r"nothing can be read now \(.*x\); the same command goes on"):
            raise_if_lost(error, location, archive=archive)
    else:
        raise_if_lost(error, location, archive=archive)


def test_an_archive_whose_store_hangs_up_is_not_taken_for_a_damaged_one(store, monkeypatch):
    store.pipe("/b/all.tar", b"")
    Flaky.failures = 1
    with pytest.raises(ClassifyError, match="the store hung up"):
        list(tar_images("flaky://b/all.tar", "all.tar", (".jpg",), 10))
    Flaky.failures = 1
    with pytest.raises(ClassifyError, match="the store hung up"):
        list(parquet_images("flaky://b/all.tar", "all.tar", None, 10))
