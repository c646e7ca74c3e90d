"""Where what is made of a repository is kept, and what makes it anew."""

from headrace.migrate.prepared import files_digest, place_in


def test_repositories_of_one_name_have_folders_of_their_own(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first, second = place_in(tmp_path, tmp_path / "a" / "net"), place_in(tmp_path, tmp_path / "b" / "net")
    assert first != second
    assert first.parent == tmp_path / "prepared"
    assert place_in(tmp_path, tmp_path / "link" / "net") == first


def test_the_digest_changes_with_any_file_but_those_that_do_not_count(tmp_path):
    (tmp_path / "net.py").write_text("1")
    (tmp_path / "out").mkdir()
    before = files_digest(tmp_path, (tmp_path / "out",))
    (tmp_path / "out" / "report.json").write_text("{}")
    assert files_digest(tmp_path, (tmp_path / "out",)) == before
    (tmp_path / "net.py").write_text("22")
    assert files_digest(tmp_path, (tmp_path / "out",)) != before
