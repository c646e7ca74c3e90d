from pathlib import Path

import pytest

from headrace.migrate.reading.source import walk
from headrace.migrate.survey.pointers import missing_contents, pointer_in, pointers
from headrace.migrate.survey.survey import survey

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 31379841\n".format("5" * 64)


ATTRIBUTES = "*.pt filter=lfs diff=lfs merge=lfs -text\n"


def test_what_is_itself_is_no_pointer(tmp_path: Path):
    (tmp_path / ".gitattributes").write_text(ATTRIBUTES)
    (tmp_path / "notes.txt").write_text("version https://example.org\n")
    (tmp_path / "about-lfs.md").write_text(POINTER + "x" * 2000)
    (tmp_path / "empty.pt").touch()
    (tmp_path / "folder.pt").mkdir()
    assert not list(pointers(tmp_path))
    assert not list(missing_contents(tmp_path))
    assert pointer_in(tmp_path / "nowhere.pt") is None
    assert pointer_in(tmp_path / "folder.pt") is None


@pytest.mark.parametrize(
    ("text", "program", "command"),
    [
        (POINTER, "Git LFS", "git lfs pull"),
        (POINTER.replace("git-lfs", "hawser"), "Git LFS", "git lfs pull"),
        ("/annex/objects/SHA256E-s31379841--55.pt\n", "git-annex", "git annex get"),
    ],
)
def test_a_pointer_is_told_with_what_fetches_its_content(tmp_path: Path, text, program, command):
    (tmp_path / "net.py").write_text("import torch\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/.gitattributes").write_text(ATTRIBUTES if program == "Git LFS" else "* annex.backend=MD5E\n")
    (tmp_path / "models/best.pt").write_text(text)
    (finding,) = missing_contents(tmp_path)
    assert (finding.code, finding.where) == ("PS018", "models/best.pt:1:0")
    assert finding.message.startswith(f"models/best.pt is a pointer of {program}")
    assert command in finding.message
    assert finding in survey(tmp_path).findings


def test_no_small_file_is_opened_where_nothing_speaks_of_pointers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/0.png").write_text(POINTER)
    (tmp_path / ".gitattributes").write_text("*.ipynb linguist-vendored\n")
    monkeypatch.setattr("headrace.migrate.survey.pointers.pointer_in", lambda path: pytest.fail(f"{path} was opened"))
    assert not list(pointers(tmp_path))


def test_many_pointers_are_told_at_once(tmp_path: Path):
    (tmp_path / ".gitattributes").write_text(ATTRIBUTES)
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_text(POINTER)
    (finding,) = missing_contents(tmp_path)
    assert finding.message.startswith("0.jpg, 1.jpg, 2.jpg and 2 more are pointers of Git LFS, and their content")


def test_pointers_are_found_beyond_as_many_files_as_are_read_as_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".gitattributes").write_text(ATTRIBUTES)
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_text(POINTER)
    monkeypatch.setattr(walk, "__defaults__", ((".py",), None, 3))  # MAX_FILES
    assert len(list(pointers(tmp_path))) == 5
