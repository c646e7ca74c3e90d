"""Graphs with stages train on many ranks as on one device, each rank with its own stages' parameters."""

import itertools

import pytest
import torch

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


def check(results, trainings):
    for at, given in enumerate(trainings):
        found = [rank[at] for rank in results]
        for one in found:
            assert max(one[key] for key in ("losses", "outputs", "values", "slots", "gradients", "again")) < 1e-6, (given, one)
            assert "captured" in one["steps"][0]
            assert one["kept"]
            assert one["updated"]
        if len(found) > 1:
            kept = [set(one["kept"]) for one in found]
            everything = set().union(*kept)
            assert all(own < everything for own in kept)
            assert all(
                one == two or not one & two for one, two in itertools.combinations(kept, 2)
            )  # copies of a stage, or others


def test_two_ranks(ranks):
    trainings = [
        {"name": "mlp", "steps": 5, "schedule": "gpipe", "accumulate": 2, "optimizer": "adam", "later": 24},
        {"name": "cnn", "steps": 4, "schedule": "interleaved", "microbatches": 4, "clip": 0.1},
    ]
    check(ranks.run(2, "staged", shape=[2], trainings=trainings), trainings)


def test_data_parallel_beside_it(ranks):
    trainings = [{"name": "mlp", "steps": 3, "clip": 0.5, "later": 24}]
    check(ranks.run(4, "staged", shape=[2, 2], trainings=trainings), trainings)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", [[1], [2], [4], [2, 2]])
def test_every_schedule(ranks, shape):
    trainings = [
        {"name": name, "steps": 50, "schedule": schedule, "microbatches": 4, "clip": 1.0, "later": 32}
        for name in ("mlp", "cnn", "vit")
        for schedule in ("gpipe", "1f1b", "interleaved")
    ]
    check(ranks.run(torch.tensor(shape).prod().item(), "staged", timeout=1100, shape=shape, trainings=trainings), trainings)


def test_all_ranks_are_told_alike_and_go_on(ranks):
    for told, expected in ranks.run(2, "staged_misfits"):
        assert "were given batches of other shapes" in told[0]
        assert "7 rows do not divide" in told[1]
        assert "divided by 5 for one microbatch and by 8 for another" in told[2]
        assert "split(0) over the data axis" in told[3]
        assert "compute other operations" in told[5]
        assert told[4] == pytest.approx(expected, rel=1e-12)


def test_checkpoints(ranks, tmp_path):
    """Written by two ranks, read by one, which writes the next one."""
    folder = str(tmp_path / "checkpoints")
    (_, told), _ = ranks.run(2, "staged_checkpoint", folder=folder, until=2)
    assert "resume a pipeline before its first step" in told
    ((later, _),) = ranks.run(1, "staged_checkpoint", folder=folder, until=4)
    ((whole, _),) = ranks.run(1, "staged_checkpoint", folder=str(tmp_path / "other"), until=4)
    assert later == pytest.approx(whole[2:], rel=1e-9)


def test_a_rank_without_parameters(ranks, tmp_path):
    first, second = ranks.run(2, "staged_criterion", folder=str(tmp_path / "checkpoints"))
    assert max(found[key] for found in (first, second) for key in ("losses", "values", "slots")) < 1e-9
    assert first["kept"]
    assert not second["kept"]


def test_a_rank_that_is_killed_is_named(ranks):
    begun = ranks.start(2, "losing_a_stage", who=1)
    for rank, (process, out) in enumerate(begun):
        process.wait(timeout=120)
        out.seek(0)
        text = out.read()
        assert process.returncode != 0
        if rank == 0:
            assert "RankLostError" in text, text
            assert "rank 1" in text, text
