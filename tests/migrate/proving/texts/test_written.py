import json
import os

import pytest

from headrace.migrate.proving.texts.written import as_lines, differs, states, written_since


def test_only_what_was_written_since_is_given(tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("kept.csv", "again.csv", "same.txt"):
        (tmp_path / name).write_text("file,label\n")
    before = states(tmp_path)
    (tmp_path / "again.csv").write_text("other\n")
    (tmp_path / "out/new.JSON").write_text("{}")
    (tmp_path / "out/picture.png").write_bytes(b"png")
    (tmp_path / "large.txt").write_text("a" * (1 << 21))
    os.replace(tmp_path / "same.txt", tmp_path / "moved.txt")
    os.symlink("/etc/hostname", tmp_path / "link.txt")
    assert written_since(tmp_path, before) == {"again.csv": "other\n", "moved.txt": "file,label\n", "out/new.JSON": "{}"}


def test_each_record_of_a_document_is_one_line():
    rows = [{"file": "a.jpg", "label": "ant"}, {"file": "b.jpg", "label": "bee"}]
    lines = ['{"file": "a.jpg", "label": "ant"}', '{"file": "b.jpg", "label": "bee"}']
    assert as_lines("a.json", json.dumps(rows, indent=2)).splitlines() == lines
    assert as_lines("a.json", json.dumps({"model": "net", "results": rows}, indent=2)).splitlines() == lines
    named = {"a.jpg": {"label": "ant"}, "b.jpg": "bee"}
    assert as_lines("a.json", json.dumps(named, indent=2)).splitlines() == ['a.jpg: {"label": "ant"}', 'b.jpg: "bee"']
    assert as_lines("a.json", "{ant\n") == "{ant\n"
    assert as_lines("a.json", "7") == ""
    assert as_lines("a.csv", "a\nb\n") == "a\nb\n"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("a.jpg,ant,0.912345678\n", "a.jpg,ant,0.912345679\n", None),
        ("a.jpg,ant,3.2145e-09\n", "a.jpg,ant,3.3145e-09\n", None),
        ("took 3.2 s\n", "took 9.1 s\n", None),
        ("a.jpg,ant,0.91\n", "a.jpg,bee,0.91\n", "it wrote 'a.jpg,bee,0.91' into o.csv instead of 'a.jpg,ant,0.91'"),
        ("a.jpg,ant,0.91\n", "a.jpg,ant,0.95\n", "it wrote 'a.jpg,ant,0.95' into o.csv instead of 'a.jpg,ant,0.91'"),
        ("a.jpg,3\n", "a.jpg,4\n", "it wrote 'a.jpg,4' into o.csv instead of 'a.jpg,3'"),
        ("a\nb\n", "a\n", "it wrote '' into o.csv instead of 'b'"),
    ],
)
def test_what_two_runs_write_otherwise_is_told_but_for_rounding_and_times(one, other, said):
    assert differs({"o.csv": one}, {"o.csv": other}) == said
    assert differs({"o.csv": one}, {"o.csv": other}, {"o.csv": one}) == said
    assert differs({"o.csv": one}, {"o.csv": other}, {"o.csv": "anything else"}) is None


def test_a_file_that_is_not_written_is_told_unless_its_name_is_another_each_time():
    assert differs({"o.csv": "a"}, {}) == "it did not write o.csv"
    assert differs({"at_12.csv": "a"}, {"at_13.csv": "a"}, {"at_14.csv": "a"}) is None
    assert differs({}, {"o.csv": "a"}) is None
