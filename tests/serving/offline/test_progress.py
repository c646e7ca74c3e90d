"""What is said of a job while it runs."""

import pytest

from headrace.serving.offline.plan import Plan, Shard
from headrace.serving.offline.progress import Progress
from headrace.serving.offline.stages import Busy, Shares


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


def test_the_bottleneck_is_named(tmp_path):
    class Told(Busy):
        def shares(self):
            return {"read": Shares(0.5), "model": Shares(0.996)}

    progress = Progress(plan_of(tmp_path, (1, 1)), done={}, errors=0)
    progress.start(Told())
    assert "bottleneck: model (100% busy)" in str(progress)
