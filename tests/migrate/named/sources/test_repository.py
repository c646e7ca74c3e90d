"""Folders with Python code."""

from headrace.migrate.named.sources.repository import takes


def test_code_at_the_top_or_one_below(tmp_path):
    assert not takes(str(tmp_path))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "net.py").write_text("")
    assert takes(str(tmp_path))
    assert not takes(str(tmp_path / "src" / "net.py"))
