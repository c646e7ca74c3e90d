from headrace.migrate.survey.submodules import missing_submodules
from headrace.migrate.survey.survey import survey


def test_a_submodule_that_is_not_checked_out_is_told(tmp_path):
    (tmp_path / ".gitmodules").write_text(
        '[submodule "a"]\n\tpath = third_party/a\n\turl = https://example.org/a.git\n[submodule "b"]\n  path=b\n  url = ../b\n'
    )
    (tmp_path / "third_party/a").mkdir(parents=True)
    (tmp_path / "third_party/a/.git").write_text("gitdir: elsewhere\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/net.py").write_text("import torch\n")
    (finding,) = missing_submodules(tmp_path)
    assert (finding.where, finding.code) == (".gitmodules:2:0", "PS017")
    assert finding.message.startswith("third_party/a is a git submodule")
    assert "--init" in finding.message
    assert finding in survey(tmp_path).findings


def test_no_submodules_and_strange_ones(tmp_path):
    assert not list(missing_submodules(tmp_path))
    (tmp_path / ".gitmodules").write_bytes(b"path = \0\npath = " + b"x" * 5000 + b"\n\xff\xfe path\n")
    assert [finding.where for finding in missing_submodules(tmp_path)] == [".gitmodules:1:0", ".gitmodules:2:0"]
