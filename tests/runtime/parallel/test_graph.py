"""Graphs over real ranks: captured with their collectives, and equal to one process: here after up to twenty steps, and every
combination after fifty among the slow tests."""

import pytest

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


TWO = [
    {"name": "mlp", "steps": 20},
    {"name": "mlp", "steps": 20, "zero": 3, "optimizer": "adam"},
    {"name": "cnn", "steps": 20, "zero": 2},
    {"name": "a block", "steps": 4, "zero": 1},  # of a ViT, of whose gathered parameters views are taken
]
# Classes split over an axis: test_head. Clipping and accumulation of split updates: test_stage_updates.
FOUR = [{"name": "mlp", "steps": 10, "tensor": True, "zero": 3, "checkpoint": ["3"]}]
EVERY = [
    {"name": "cnn", "steps": 6, "tensor": True, "zero": 1, "accumulate": 2, "clip": 0.1},
    {"name": "vit", "steps": 50, "tensor": True, "checkpoint": ["blocks.0.mlp.0"]},
    {"name": "cnn", "steps": 50, "tensor": True, "zero": 3, "accumulate": 2, "clip": 0.1},
    {"name": "mlp", "steps": 50, "zero": 2, "accumulate": 4, "optimizer": "adam"},
    *(
        {"name": name, "steps": 50, "zero": zero, "tensor": tensor, "optimizer": optimizer}
        for name in ("mlp", "cnn", "vit")
        for zero in range(4)
        for tensor in (False, True)
        for optimizer in ("sgd", "adam")
    ),
]


def check(results):
    for found in results[0]:
        assert found["losses"] < 1e-6, found
        assert found["values"] < 1e-6, found
    for rank in results:  # the same numbers, and the same choices: those of rank 0, with its times
        assert [(one["first"], one["steps"]) for one in rank] == [(one["first"], one["steps"]) for one in results[0]]


def check_captured(results):
    for rank in results:
        for found in rank:
            assert set(found["ways"]) <= {"captured", "eager"}, found
            assert "captured" in found["ways"], found
            assert found["collectives"] > 0, found


def test_two_ranks_train_as_one(ranks):
    results = ranks.run(2, "training", mesh=[2], trainings=TWO)
    check(results)
    check_captured(results)
    # With their waits: one sum of all gradients, or one gather and one scatter, beside what the loss exchanges.
    assert [found["collectives"] for found in results[0][:2]] == [4, 6]


def test_four_ranks_train_as_one(ranks):
    results = ranks.run(4, "training", mesh=[2, 2], trainings=FOUR)
    check(results)
    check_captured(results)


def test_inference(ranks):
    (found, *_) = ranks.run(2, "inference", mesh=[1, 2])
    for furthest, ways, training, captures in found.values():
        assert furthest < 1e-12
        assert (ways, training, captures) == (["captured"], True, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_combination(ranks):
    results = ranks.run(4, "training", timeout=1700, mesh=[2, 2], trainings=EVERY)
    check(results)
    check_captured(results)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [2, 3])
def test_every_way_to_choose(ranks, count):
    """Eager, and measured: what each rank would choose by itself may differ, and all choose alike."""
    trainings = [{"name": "mlp", "steps": 50, "graph": way} for way in ("eager", "", None)]
    check(ranks.run(count, "training", timeout=1700, mesh=[count], trainings=trainings))
