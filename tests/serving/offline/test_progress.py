"""What is said of a job while it runs."""

from types import SimpleNamespace

import pytest

from headrace.serving.offline import progress as progress_module
from headrace.serving.offline.plan import Plan, Shard
from headrace.serving.offline.progress import Clock, Progress


def plan_of(tmp_path, *shards):
    made = [
        Shard(number=number, kind="x", name="", location="", count=count, size=size, offset=0, digest="")
        for number, (count, size) in enumerate(shards)
    ]
    return Plan(folder=tmp_path, shards=tuple(made), base="", left_out=0)


def test_images_are_the_share_where_they_are_counted(tmp_path):
    progress = Progress(plan_of(tmp_path, (10, 5), (10, 5), (20, 5)), done={0: 10}, errors=1)
    assert (progress.images, progress.total, progress.share) == (10, 40, 0.25)
    assert progress.seconds_left is None  # nothing was done in this run
    for number in range(10):
        progress.image(number == 3)
    assert progress.share == 0.5
    assert progress.committed == 10
    progress.commit(progress_shard(progress, 1), 10, 1)
    assert (progress.committed, progress.committed_errors, progress.shards_done, progress.errors) == (20, 2, 2, 2)
    assert progress.seconds_left > 0
    assert "20 of 40 images" in str(progress)
    assert "2 errors" in str(progress)


def progress_shard(progress, number):
    return progress._plan.shards[number]


def test_bytes_are_the_share_where_images_are_not_counted(tmp_path):
    progress = Progress(plan_of(tmp_path, (None, 100), (None, 300)), done={}, errors=0)
    assert (progress.total, progress.share) == (None, 0.0)
    for _ in range(4):
        progress.image(False)
    progress.commit(progress_shard(progress, 0), 4, 0)
    assert progress.share == 0.25
    progress.image(False)  # images of the second shard are taken to be as large as those of the first
    assert progress.share == pytest.approx(125 / 400)
    assert progress.seconds_left > 0


def test_nothing_is_promised_where_nothing_is_known(tmp_path):
    progress = Progress(plan_of(tmp_path, (None, -1)), done={}, errors=0)
    progress.image(False)
    assert progress.share is progress.seconds_left is None
    assert "left" not in str(progress)


def test_the_busiest_stage_is_the_bottleneck(tmp_path, monkeypatch):
    now = [100.0]  # a clock that only this test moves: a machine with other work stops between any two looks at the real one
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0]))
    clock = Clock({"read": 4, "model": 1})
    with clock.work("read"), clock.work("model"):
        now[0] += 0.75
    now[0] += 0.25
    assert clock.elapsed == 1
    assert clock.busy() == {"read": 0.75 / 4, "model": 0.75}
    with clock.work("model"), clock.work("model"):  # more than its workers could
        now[0] += 1
    assert clock.busy() == {"read": 0.75 / 8, "model": 1}
    assert clock.bottleneck() == "model"
    progress = Progress(plan_of(tmp_path, (1, 1)), done={}, errors=0)
    progress.start(clock)
    assert "bottleneck: model (100% busy)" in str(progress)
