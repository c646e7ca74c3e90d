"""What a job keeps: it goes on only as what it was, alone, and touches nothing else."""

import fcntl
import json
import os

import pytest

from headrace.errors import ClassifyError


@pytest.fixture
def begun(job, folder):
    """A job that was interrupted after its first shard."""
    summary, _ = job(folder, stopped=(folder.parent / "out/part-000000.parquet").exists)
    assert (summary.shards_done, summary.complete) == (1, False)
    return folder.parent / "out"


def test_a_changed_option_is_refused_by_name(job, folder, begun):
    with pytest.raises(ClassifyError, match=r"top_k was 5 and is 2; .*--restart"):
        job(folder, top_k=2)
    with pytest.raises(ClassifyError, match="decoding was fast and is exact"):
        job(folder, decoding="exact")


def test_threads_and_limits_on_errors_may_change(job, folder, begun, jpegs):
    summary, _ = job(folder, decode_threads=1, readers=1, max_errors=5)
    assert (summary.complete, summary.images, summary.before) == (True, len(jpegs), 16)


@pytest.mark.parametrize("change", ["written", "added", "removed"])
def test_a_changed_source_is_refused_and_the_file_named(job, folder, begun, change):
    path = folder / "b/005.jpg"
    if change == "written":
        path.write_bytes((folder / "b/006.jpg").read_bytes() + b"\0")
    elif change == "added":
        path = folder / "b/004x.jpg"
        path.write_bytes(b"new")
    else:
        path.unlink()
    named = "b/006.jpg" if change == "removed" else path.relative_to(folder).as_posix()
    with pytest.raises(ClassifyError, match=f"the source has changed, {named} is new.*--restart"):
        job(folder)


def test_another_source_is_refused(job, folder, begun, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/a.jpg").write_bytes((folder / "a/000.jpg").read_bytes())
    with pytest.raises(ClassifyError, match=f"the source was {folder}"):
        job(tmp_path / "copy")


def test_another_model_is_refused(job, folder, repository):
    repository.package("one")
    job(folder, model=repository.path)
    repository.package("one", scale=3.0)
    with pytest.raises(ClassifyError, match="the model was one version 1, or has been packaged or tuned again"):
        job(folder, model=repository.path)


def test_restart_begins_anew(job, folder, begun, jpegs):
    (begun / "notes.txt").write_text("the user's own")
    summary, rows = job(folder, top_k=2, restart=True)
    assert (summary.before, summary.images, summary.complete) == (0, len(jpegs), True)
    assert {len(row["predictions"]) for row in rows if row["predictions"]} == {2}
    assert (begun / "notes.txt").exists()


def test_a_folder_of_something_else_is_left_alone(job, folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-000000.parquet").write_text("somebody's")
    for restart in (False, True):
        with pytest.raises(ClassifyError, match="is not empty and holds no job"):
            job(folder, restart=restart)
    assert (tmp_path / "out/part-000000.parquet").read_text() == "somebody's"
    with pytest.raises(ClassifyError, match="is a file; name a folder"):
        job(folder, out=folder / "a/000.jpg")


def test_another_jobs_file_is_refused(job, folder, begun, tmp_path):
    job(folder, out=tmp_path / "other", top_k=2)
    os.replace(tmp_path / "other/part-000001.parquet", begun / "part-000001.parquet")
    with pytest.raises(ClassifyError, match="was not written by this job"):
        job(folder)
    (begun / "part-000001.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(ClassifyError, match="is damaged .* delete it"):
        job(folder)


def test_two_at_once_are_refused(job, folder, begun):
    with (begun / ".headrace/lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ClassifyError, match="another headrace classify is at work"):
            job(folder)
    assert job(folder)[0].complete


def test_a_job_killed_while_it_looked_around_begins_anew(job, folder, begun, jpegs):
    """The record is written last: without it, whatever else is there is nobody's."""
    (begun / ".headrace/job.json").unlink()
    for path in begun.glob("part-*"):
        path.unlink()
    (begun / ".headrace/plan-new").mkdir()
    (begun / ".headrace/plan-new/shards.jsonl").write_text("{half")
    assert job(folder)[0].images == len(jpegs)


def test_a_damaged_record_is_said(job, folder, begun):
    (begun / ".headrace/job.json").write_text("{")
    with pytest.raises(ClassifyError, match=r"job.json is damaged; give --restart"):
        job(folder)
    assert job(folder, restart=True)[0].complete


def test_an_output_folder_inside_the_source_is_no_source(job, folder, jpegs):
    out = folder / "labels"
    job(folder, out=out)
    summary, _ = job(folder, out=out)
    assert (summary.images, summary.before, summary.left_out) == (len(jpegs), len(jpegs), 0)
    assert json.loads((out / "_summary.json").read_text())["complete"]
