import io
import json
import stat
import struct
import tarfile
import zipfile

import pytest

from headrace.errors import MigrateError
from headrace.migrate.stages import archive_folder
from headrace.migrate.stages.archive_folder import HANDLER, is_archive, unpacked

MANIFEST = json.dumps({"model": {"modelName": "net", "handler": "handler.py"}})


def archive(tmp_path, members, manifest=MANIFEST):
    path = tmp_path / "net.mar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in [*members, ("MAR-INF/MANIFEST.json", manifest)]:
            file.writestr(name, data)
    return path


def refused(path, tmp_path, words):
    before = sorted(item for item in tmp_path.rglob("*"))
    with pytest.raises(MigrateError, match=words):
        unpacked(path, tmp_path / "out")
    assert sorted(item for item in tmp_path.rglob("*")) == before


def test_a_handler_of_its_own_is_the_script(tmp_path):
    path = archive(tmp_path, [("handler.py", "x = 1\n"), ("parts/net.py", "y = 2\n")])
    assert is_archive(path)
    assert unpacked(path, tmp_path / "out") == "handler.py"
    assert (tmp_path / "out/parts/net.py").read_text() == "y = 2\n"


def test_a_handler_of_torchserves_gets_a_file(tmp_path):
    path = archive(tmp_path, [("net.pt", b"\0")], json.dumps({"model": {"handler": "image_classifier"}}))
    assert unpacked(path, tmp_path / "out") == HANDLER
    assert "class Handler(ImageClassifier)" in (tmp_path / "out" / HANDLER).read_text()


def test_the_other_form_of_archives_is_read(tmp_path):
    path = tmp_path / "net.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name, text in {"net/handler.py": "x = 1\n", "net/MAR-INF/MANIFEST.json": MANIFEST}.items():
            item = tarfile.TarInfo(name)
            item.size = len(text)
            file.addfile(item, io.BytesIO(text.encode()))
    assert unpacked(path, tmp_path / "out") == "net/handler.py"


@pytest.mark.parametrize("name", ["../up.py", "/root.py", "a/../../up.py", "..\\up.py", "C:/x.py", "a/..", "\\\\host\\x"])
def test_a_member_that_leads_out_is_refused_with_its_name(tmp_path, name):
    refused(archive(tmp_path, [(name, "x")]), tmp_path, "leads out of the archive")


def test_links_and_special_files_are_refused_with_their_name(tmp_path):
    item = zipfile.ZipInfo("weights.pth")
    item.external_attr = (stat.S_IFLNK | 0o777) << 16
    refused(archive(tmp_path, [(item, "/etc/passwd")]), tmp_path, "'weights.pth' is a link")
    item = zipfile.ZipInfo("pipe")
    item.external_attr = (stat.S_IFIFO | 0o666) << 16
    refused(archive(tmp_path, [(item, "")]), tmp_path, "'pipe' is a special file")


@pytest.mark.parametrize(
    ("kind", "words"), [(tarfile.SYMTYPE, "a link"), (tarfile.LNKTYPE, "a link"), (tarfile.CHRTYPE, "special")]
)
def test_the_same_holds_of_the_other_form(tmp_path, kind, words):
    path = tmp_path / "net.tgz"
    with tarfile.open(path, "w:gz") as file:
        item = tarfile.TarInfo("weights.pth")
        item.type, item.linkname = kind, "/etc/passwd"
        file.addfile(item)
    refused(path, tmp_path, words)


def test_members_that_come_twice_or_lie_below_a_file_are_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = archive(tmp_path, [("handler.py", "a"), ("handler.py", "b")])
    refused(path, tmp_path, "'handler.py' comes twice")
    refused(archive(tmp_path, [("a", "x"), ("a/b", "y")]), tmp_path, "'a/b' comes twice")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_folder, "_LEAST_BYTES", 1 << 20)
    refused(archive(tmp_path, [("zeros.pth", b"\0" * (1 << 22))]), tmp_path, "'zeros.pth' it unpacks to 4,194,304 bytes")
    path = tmp_path / "net.tgz"
    with tarfile.open(path, "w:gz") as file:
        item = tarfile.TarInfo("zeros.pth")
        item.size = 1 << 22
        file.addfile(item, io.BytesIO(b"\0" * item.size))
    refused(path, tmp_path, "'zeros.pth' it unpacks to")


def test_a_member_that_says_less_than_it_holds_is_refused(tmp_path):
    path = archive(tmp_path, [("zeros.pth", b"\0" * 100_000)])
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 10)  # the size in the directory
    path.write_bytes(data)
    refused(path, tmp_path, "cannot be unpacked|holds more than it says")


def test_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_folder, "_MOST_MEMBERS", 3)
    refused(archive(tmp_path, [(f"{number}.txt", "") for number in range(5)]), tmp_path, "more than 3 files")


@pytest.mark.parametrize("manifest", ["", "[]", "{", '{"model": {}}', '{"model": {"handler": 1}}', "[" * 9000])
def test_a_manifest_without_a_handler_is_refused(tmp_path, manifest):
    refused(archive(tmp_path, [], manifest), tmp_path, "names no handler")


@pytest.mark.parametrize("handler", ["text_classifier", "missing.py", "../handler.py", "/etc/x.py"])
def test_a_handler_that_is_not_there_is_named(tmp_path, handler):
    refused(archive(tmp_path, [], json.dumps({"model": {"handler": handler}})), tmp_path, "neither a file of the archive nor")


def test_what_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "net.mar"
    path.write_bytes(b"no archive")
    refused(path, tmp_path, "cannot be unpacked")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("handler.py", "")
    refused(path, tmp_path, "MAR-INF/MANIFEST.json is missing")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_whose_compressed_bytes_are_damaged_is_an_error_of_one_line(tmp_path, method):
    path = tmp_path / "net.mar"
    whole = bytes(range(256)) * 40
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("net.pt", whole)
        file.writestr("MAR-INF/MANIFEST.json", MANIFEST)
    packed = path.read_bytes()
    begin = packed.index(b"net.pt") + len(b"net.pt")
    said = []
    for place in range(begin, begin + 16):  # some of them nobody reads; then the archive lacks its handler
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :])
        with pytest.raises(MigrateError) as raised:
            unpacked(path, tmp_path / "out")
        said.append(str(raised.value))
        assert not (tmp_path / "out").exists()
    assert not any("\n" in text for text in said)
    assert sum("net.mar cannot be unpacked" in text for text in said) > 4
