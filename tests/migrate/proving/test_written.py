import json
import os

from headrace.migrate.proving.written import as_lines, states, written_since


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
