"""Where a job waits, by its stages; and what nobody foresaw ends it with an error: it never looks complete, and goes on once
the fault is gone."""

import contextlib
import os
import resource
import threading
import time
from pathlib import Path

import psutil
import pytest

from headrace.errors import ClassifyError
from headrace.runtime.artifact.pipeline.splitting import cut_model
from headrace.serving.offline import pipeline, run
from headrace.serving.offline.classifier import Classifier
from headrace.serving.offline.output import ShardWriter
from headrace.serving.offline.plan import Plan
from headrace.specs import Preprocessing, Resize
from tests.runtime.artifact.pipeline.models import deep, deep_package
from tests.runtime.artifact.split.models import SIDE

ORDER = ["read", "decode", "model", "write"]
ONCE = threading.Lock()  # two threads of a job ask whether it is stopped


@pytest.fixture(scope="module")
def cut(once):
    """A classifier as a pipeline of 2 stages, which take some milliseconds each."""
    return once("offline-cut", made)


def made(tmp):
    preprocessing = Preprocessing(geometry=(Resize(size=(SIDE, SIDE)),), mean=(0.5,) * 3, std=(0.2,) * 3)
    labels = [f"thing {number}" for number in range(40)]
    model = deep(width=900, blocks=12, classes=40)
    cut_model(deep_package(tmp, model, name="faces", labels=labels, preprocessing=preprocessing), tmp / "pipeline", 2)
    return tmp / "pipeline"


def slowed(monkeypatch, place, name, seconds):
    """What is slow here waits, so that a machine with much other work tells the same."""
    real = getattr(place, name)

    def slow(*arguments):
        time.sleep(seconds)
        return real(*arguments)

    monkeypatch.setattr(place, name, slow)


# Each but the first and the last has some before and some behind it; an archive is unpacked where files are read.
@pytest.mark.parametrize(
    "slow",
    [
        one if one in ("decode", "write", "archive") else pytest.param(one, marks=pytest.mark.slow)
        for one in (*ORDER, "archive")
    ],
)
def test_stages_before_a_slow_one_are_blocked_and_those_behind_it_starve(
    job, folder, jpegs, make_tar, tmp_path, monkeypatch, slow
):
    names = [name for name in sorted(jpegs) if "broken" not in name] * 3
    source = tmp_path / "list.txt"
    source.write_text("\n".join(f"photos/{name}" for name in names))
    if slow == "archive":
        source = make_tar(tmp_path / "all.tar", {f"{n:03}.jpg": jpegs[name] for n, name in enumerate(names)})
        images = pipeline.tar_images

        def slowly(*arguments):
            for image in images(*arguments):
                time.sleep(0.01)
                yield image

        monkeypatch.setattr(pipeline, "tar_images", slowly)
        slow = "read"
    else:
        place, name, seconds = {
            "read": (pipeline, "fill", 0.02),
            "decode": (Classifier, "decode", 0.04),
            "model": (Classifier, "scores", 0.04),
            "write": (ShardWriter, "add", 0.01),
        }[slow]
        slowed(monkeypatch, place, name, seconds)
    summary, rows = job(source, readers=2, batch=2)  # so that there is more than the queues hold
    assert len(rows) == len(names)
    for stage in ORDER:
        assert summary.busy[stage] + summary.starved[stage] + summary.blocked[stage] <= 1.0001
    assert summary.bottleneck == slow
    number = ORDER.index(slow)
    assert summary.busy[slow] > 0.5
    for stage in ORDER[:number]:
        assert summary.blocked[stage] > summary.starved[stage]
        assert summary.blocked[stage] > 0.3
    for stage in ORDER[number + 1 :]:
        assert summary.starved[stage] > summary.blocked[stage]
        assert summary.starved[stage] > 0.3
    assert summary.model_stages == {}


def test_what_runs_is_told_while_it_runs(job, folder, jpegs, monkeypatch):
    clocks, seen = [], []
    monkeypatch.setattr(run, "make_clock", lambda *given: clocks.append(pipeline.make_clock(*given)) or clocks[-1])
    slowed(monkeypatch, Classifier, "scores", 0.05)

    def stopped():
        if clocks and clocks[0].fill:
            seen.append(clocks[0].report())
        return False

    job(folder, stopped=stopped)
    last = {one.name: one for one in seen[-1]}
    assert list(last) == ORDER
    assert (last["read"].workers, last["decode"].workers, last["model"].workers, last["write"].workers) == (4, 2, 1, 1)
    assert last["model"].rate > 0
    assert all(0 <= held <= room for reports in seen for held, room in (one.queue for one in reports))
    assert clocks[0].stages["decode"].items == clocks[0].stages["write"].items == len(jpegs)
    assert clocks[0].stages["model"].items == len(jpegs) - 1, "one is no image"


def test_the_stages_of_a_model_that_is_a_pipeline_are_told(job, jpegs, make_tar, tmp_path, monkeypatch, cut):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "waiting_stages"))
    monkeypatch.setenv("STAGES_WAIT", "0.2 0.2")  # they tell of themselves every second
    names = sorted(jpegs)
    source = make_tar(tmp_path / "all.tar", {f"{n:04}.jpg": jpegs[names[n % 20]] for n in range(300)})
    summary, rows = job(source, model=cut, threads=None)
    assert len(rows) == 300
    assert list(summary.model_stages) == ["stage 0", "stage 1"]
    for shares in summary.model_stages.values():
        assert sum(shares.values()) == pytest.approx(1, abs=0.001)
        assert shares["busy"] > 0
    assert set(summary.busy) == set(ORDER)


@pytest.mark.parametrize("stage", ["source", "read", "decode", "collate", "model", "labels"])
def test_a_fault_of_ours_is_never_taken_for_the_end(job, folder, jpegs, monkeypatch, stage):
    calls = []
    before = threading.enumerate()  # other tests' of this process may end later

    def failing(real):
        def call(*arguments):
            calls.append(1)
            if len(calls) > 2:
                raise RuntimeError("a fault of ours")
            return real(*arguments)

        return call

    with monkeypatch.context() as patch:
        if stage == "source":
            members = Plan.members

            def broken(plan, shard):
                for number, member in enumerate(members(plan, shard)):
                    if number == 9:
                        raise RuntimeError("a fault of ours")
                    yield member

            patch.setattr(Plan, "members", broken)
        elif stage in ("read", "collate"):
            name = {"read": "fill", "collate": "collate"}[stage]
            patch.setattr(pipeline, name, failing(getattr(pipeline, name)))
        else:
            name = {"decode": "decode", "model": "scores", "labels": "labels"}[stage]
            patch.setattr(Classifier, name, failing(getattr(Classifier, name)))
        where = {
            "source": "read failed after a/007.jpg",
            "read": r"read failed at a/00\d.jpg",
            "decode": r"decode failed at [ab]/0\d\d.jpg to [ab]/0\d\d.jpg",
            "collate": "model failed at a/016.jpg to b/003.jpg",
            "model": "model failed at a/016.jpg to b/003.jpg",
            "labels": "write failed at a/002.jpg",
        }[stage]
        with pytest.raises(ClassifyError, match=rf"\A{where}: RuntimeError: a fault of ours. What is finished stays; the same"):
            job(folder)
    assert not (folder.parent / "out/_summary.json").exists()
    assert not list((folder.parent / "out/.headrace").glob("aside-*"))
    left = [thread for thread in threading.enumerate() if thread.name.startswith(("headrace", "spdl"))]
    assert [thread.name for thread in left if thread not in before] == []
    summary, rows = job(folder)
    assert summary.complete
    assert [row["image"] for row in rows] == sorted(jpegs)


def test_a_stage_of_the_model_that_is_killed_ends_the_job_which_goes_on(job, jpegs, make_tar, tmp_path, cut):
    source, out = tmp_path / "archives", tmp_path / "out"
    source.mkdir()
    names = sorted(jpegs)
    for number in range(20):
        make_tar(source / f"{number:02}.tar", {f"{n:02}.jpg": jpegs[names[n]] for n in range(20)})
    killed: list[psutil.Process] = []

    def kill() -> None:
        """As soon as a part is there: the job asks nobody between its parts where it has read all that is left."""
        while not (out / "part-000001.parquet").exists():
            if ended.wait(0.01):
                return
        ours = psutil.Process().children(recursive=True)
        for one in ours:
            with contextlib.suppress(psutil.NoSuchProcess):  # one of another test's, which has just ended
                killed.extend([one] * ("pipeline.stage" in " ".join(one.cmdline())))
        killed[-1].kill()

    ended = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(
            ClassifyError, match=r"\Amodel failed at \d\d.tar/\d\d.jpg to .*: stage \d of 2 has ended \(signal SIGKILL\)\. "
        ):
            job(source, model=cut, threads=None)
    finally:
        ended.set()
        killer.join()
    assert not any(stage.is_running() for stage in killed)
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 2 <= len(done) < 20
    summary, rows = job(source, model=cut, threads=None)
    assert summary.before == 20 * len(done)
    assert [row["image"] for row in rows] == [f"{number:02}.tar/{n:02}.jpg" for number in range(20) for n in range(20)]
    assert not any(row["error"] for row in rows)
    assert done.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}.items()


def test_a_model_that_gives_nothing_any_more_ends_the_job(job, folder, jpegs, monkeypatch, cut):
    """Its session is closed in the middle: that is not the fault of the images that come after."""
    calls = []
    scores = Classifier.scores

    def closing(classifier, rows):
        calls.append(1)
        if len(calls) == 3:
            classifier.close()
        return scores(classifier, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "scores", closing)
        with pytest.raises(ClassifyError, match=r"model failed at .*: (the session was|this session is) closed"):
            job(folder, model=cut, threads=None, instances=1)
    summary, rows = job(folder, model=cut, threads=None, instances=1)
    assert [row["image"] for row in rows if row["error"]] == ["b/broken.jpg"]
    assert (summary.complete, len(rows)) == (True, len(jpegs))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_source_that_vanishes_ends_the_job_which_goes_on(job, folder, jpegs, monkeypatch, replaced):
    out, moved = folder.parent / "out", folder.parent / "moved"

    def stopped():
        with ONCE:
            if (out / "part-000000.parquet").exists() and not moved.exists():
                folder.rename(moved)
                if replaced:
                    folder.mkdir()
        return False

    slowed(monkeypatch, pipeline, "fill", 0.02)  # so that some is still to be read then
    with pytest.raises(
        ClassifyError, match=rf"read failed at [ab]/\w+.jpg: {folder} is gone, or something else is in its place; the"
    ):
        job(folder, stopped=stopped, batch=2, readers=1)
    before = len(list(out.glob("part-*")))
    if replaced:
        folder.rmdir()
    moved.rename(folder)
    summary, rows = job(folder, batch=2)
    assert summary.before == 16 * before > 0
    assert [row["image"] for row in rows if row["error"]] == ["b/broken.jpg"]
    assert [row["image"] for row in rows] == sorted(jpegs)


def test_a_pipe_among_the_files_waits_for_nobody(job, folder, jpegs, tmp_path):
    os.mkfifo(folder / "a" / "pipe.jpg")
    (folder / "a" / "gone.jpg").symlink_to("nowhere")
    _, rows = job(folder)
    assert [row["image"] for row in rows] == sorted([*jpegs, "a/pipe.jpg", "a/gone.jpg"])
    assert {row["image"]: row["error"] for row in rows if row["error"] and row["image"] != "b/broken.jpg"} == {
        "a/gone.jpg": "the file cannot be read: No such file or directory",
        "a/pipe.jpg": "the file cannot be read: it is not a file",
    }
    source = tmp_path / "list.txt"
    source.write_text("photos/a/000.jpg\nphotos/a/pipe.jpg\nphotos/a\nphotos/a/001.jpg\n")
    _, rows = job(source, out=tmp_path / "of-list")
    assert [row["error"] for row in rows] == [None, *["the file cannot be read: it is not a file"] * 2, None]


def test_descriptors_that_are_used_up_are_not_the_images_fault(job, folder, jpegs, monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    slowed(monkeypatch, pipeline, "fill", 0.01)
    out = folder.parent / "out"

    def stopped():
        if (out / "part-000000.parquet").exists():
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        return False

    try:
        with pytest.raises(ClassifyError, match=r"(read|write) failed at .*Too many open files"):
            job(folder, stopped=stopped, batch=2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    _, rows = job(folder, batch=2)
    assert [row["image"] for row in rows if row["error"]] == ["b/broken.jpg"]
    assert [row["image"] for row in rows] == sorted(jpegs)
