"""A file or a module, and an expression."""

from headrace.migrate.named.sources.python_expression import takes


def test_files_and_modules_that_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text("")
    (tmp_path / "package").mkdir()
    for what in ("net.py:Net()", "nets:Net", "package.nets:Net(3)", "torch.nn:Identity"):
        assert takes(what), what
    for what in ("net.py", "net.py:", "nothing_here:Net", "a/b:c", "tim:resnet50"):
        assert not takes(what), what
