"""The migrated copy appears whole or not at all, and never over something that Headrace did not write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import MigrateError
from headrace.migrate.rewriting.rewrite import Change
from headrace.migrate.stages.copy_tree import Copied
from headrace.migrate.stages.migrated_copy import check_output, models_folder, write_output

pytestmark = pytest.mark.usefixtures("warm_sandbox")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "pkg").mkdir(parents=True)
    (root / "evaluate.py").write_bytes(b"before\r\n")
    (root / "pkg/data.bin").write_bytes(bytes(range(256)))
    return root


CHANGE = Change("evaluate.py", b"before\r\n", b"after\r\n", ["PS201"], [])


def write(repository: Path, out: Path, models: Path | None = None) -> None:
    write_output(repository, out, [CHANGE], models=models, report=lambda copied: {"schema": 1, "linked": copied.linked})


def test_only_changed_files_differ_and_the_models_are_there(repository: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "net/1").mkdir(parents=True)
    (models / "net/1/model.onnx").write_bytes(b"onnx")
    write(repository, tmp_path / "deep/out", models)
    out = tmp_path / "deep/out"
    assert (out / "evaluate.py").read_bytes() == b"after\r\n"
    assert (out / "pkg/data.bin").read_bytes() == bytes(range(256))
    assert (out / "models/net/1/model.onnx").read_bytes() == b"onnx"
    assert json.loads((out / "headrace-report.json").read_text()) == {"schema": 1, "linked": []}
    assert (repository / "evaluate.py").read_bytes() == b"before\r\n"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_what_headrace_wrote_is_replaced(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(repository, out)
    (repository / "pkg/data.bin").rename(repository / "pkg/other.bin")
    (out / "pkg/__pycache__").mkdir()
    (out / "pkg/__pycache__/x.pyc").write_bytes(b"")
    write(repository, out)
    assert sorted(path.name for path in (out / "pkg").iterdir()) == ["other.bin"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]


@pytest.mark.parametrize("what", ["edited", "added", "a link", "a package", "in a hidden folder"])
def test_what_was_changed_in_an_earlier_output_is_not_dropped(repository: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "out"
    write(repository, out)
    path = {"edited": "evaluate.py", "added": "pkg/notes.txt", "a link": "pkg/link", "a package": "models/net/labels.txt"}.get(
        what, ".cache/x"
    )
    (out / path).parent.mkdir(parents=True, exist_ok=True)
    if what == "a link":
        (out / path).symlink_to(tmp_path)
    else:
        (out / path).write_text("mine")
    for act in (lambda: check_output(repository, out), lambda: write(repository, out)):
        with pytest.raises(MigrateError, match=f"did not write there: {path};"):
            act()
    assert (out / path).is_symlink() or (out / path).read_text() == "mine"
    (out / path).unlink()
    if what != "edited":
        write(repository, out)


def test_an_output_that_says_not_what_was_written_is_not_dropped(repository: Path, tmp_path: Path) -> None:
    write(repository, tmp_path / "out")
    (tmp_path / "out/.headrace-written.json").unlink()
    with pytest.raises(MigrateError, match="did not write there"):
        write(repository, tmp_path / "out")


def test_an_output_inside_the_repository_does_not_hold_itself(repository: Path) -> None:
    out = repository / "build/out"
    write(repository, out)
    write(repository, out)
    assert not (out / "build/out").exists()
    assert (out / "evaluate.py").exists()


def test_what_headrace_did_not_write_is_refused(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    check_output(repository, other)
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(MigrateError, match="not written by headrace"):
        write(repository, other)
    assert (other / "thesis.tex").read_text() == "precious"
    with pytest.raises(MigrateError, match="repository itself"):
        check_output(repository, repository)
    with pytest.raises(MigrateError, match="repository itself"):
        check_output(repository, tmp_path)
    with pytest.raises(MigrateError, match="is a file"):
        check_output(repository, repository / "evaluate.py")


def test_a_failure_leaves_the_former_output(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(repository, out)

    def fails(_copied: Copied) -> dict:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_output(repository, out, [], models=None, report=fails)
    assert (out / "evaluate.py").read_bytes() == b"after\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "repository"]


def test_a_package_named_models_keeps_its_place(repository: Path) -> None:
    assert models_folder(repository) == "models"
    (repository / "models").mkdir()
    assert models_folder(repository) == "model_repository"


def test_a_link_out_of_the_repository_becomes_a_file_of_the_copy(repository: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.py"
    precious.write_bytes(b"before\r\n")
    (repository / "evaluate.py").unlink()
    (repository / "evaluate.py").symlink_to(precious)
    write(repository, tmp_path / "out")
    assert (tmp_path / "out/evaluate.py").read_bytes() == b"after\r\n"
    assert precious.read_bytes() == b"before\r\n"
