"""Where what is made of a repository is kept, and what makes it anew."""

import os
import sys

import pytest

from headrace.migrate.prepared import files_digest, installed_digest, place_in


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


@pytest.mark.parametrize("linked", ["weights/net.pt", "weights"])
def test_what_a_link_leads_to_counts(tmp_path, linked):
    """Weights are often kept elsewhere; the package of before would answer with the old ones."""
    repository, weights = tmp_path / "net", tmp_path / "weights" / "net.pt"
    repository.mkdir()
    weights.parent.mkdir()
    weights.write_bytes(b"old")
    (repository / "link").symlink_to(tmp_path / linked)
    before = files_digest(repository)
    assert files_digest(repository) == before
    weights.write_bytes(b"newer")
    assert files_digest(repository) != before


def test_links_that_lead_nowhere_or_in_a_circle_are_passed_over(tmp_path):
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "above").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "pipe").symlink_to(tmp_path / "fifo")
    os.mkfifo(tmp_path / "fifo")
    assert files_digest(tmp_path) == files_digest(tmp_path)


def test_what_is_installed_counts_wherever_the_command_is_typed(tmp_path, monkeypatch):
    """A checkout holds what its own installation left, and is no library."""
    (tmp_path / "here" / "net.egg-info").mkdir(parents=True)
    (tmp_path / "packages").mkdir()
    typed_in = [] if sys.flags.safe_path else [""]  # what leads the path
    monkeypatch.setattr(sys, "path", [*typed_in, str(tmp_path / "packages")])
    before = installed_digest()
    monkeypatch.chdir(tmp_path / "here")
    assert installed_digest() == before
    sys.path[: len(typed_in)] = [str(tmp_path / "here")] * len(typed_in)
    assert installed_digest() == before
    (tmp_path / "packages" / "timm-1.0.dist-info").mkdir()
    assert installed_digest() != before
