"""Pipelines train as the network on one device does."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from headrace import parallel
from headrace.errors import InputError

pytestmark = pytest.mark.timeout(900)  # several processes that wait for each other, on whatever cores there are


def check(results, trainings):
    for at, (name, schedule, steps) in enumerate(trainings):
        assert steps
        for found in (rank[at] for rank in results):
            assert found[:2] == [name, schedule]
            assert found[2] < 1e-6, found
            assert found[3] < 1e-6, found
        seen = {key for rank in results for key in rank[at][4]}
        alone = [set(rank[at][4]) for rank in results]
        assert all(own for own in alone)
        if len(results) > 1:
            assert all(own < seen for own in alone)  # each rank has a part of the network


TRAININGS = [("mlp", "gpipe", 50), ("mlp", "interleaved", 5), ("vit", "1f1b", 5)]


def test_two_ranks(ranks):
    check(ranks.run(2, "piped", shape=[2], trainings=TRAININGS), TRAININGS)


def test_data_parallel_beside_it(ranks):
    trainings = [("mlp", "1f1b", 10)]
    check(ranks.run(4, "piped", shape=[2, 2], trainings=trainings), trainings)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", [[1], [2], [4], [2, 2]])
def test_every_schedule(ranks, shape):
    trainings = [(name, schedule, 50) for name in ("mlp", "vit") for schedule in ("gpipe", "1f1b", "interleaved")]
    if shape == [4]:  # as many stages as ranks: each has one, and 1F1B wants as many microbatches
        trainings = [training for training in trainings if training[1] == "gpipe"]
    check(ranks.run(torch.tensor(shape).prod().item(), "piped", timeout=1100, shape=shape, trainings=trainings), trainings)


def test_one_rank_runs_the_same_script_and_what_cannot_be_is_said(alone):
    mesh = parallel.placement("cpu", [0])
    stages = [nn.Linear(3, 4), nn.Linear(4, 2)]
    pipeline = parallel.Pipeline(stages, functional.cross_entropy, mesh, microbatches=2)
    images, labels = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    loss = pipeline.step(images, labels)
    gradients = [value.grad.clone() for value in pipeline.parameters()]
    expected = functional.cross_entropy(nn.Sequential(*stages)(images), labels)
    assert torch.allclose(loss, expected)
    for value, gradient in zip(pipeline.parameters(), gradients, strict=True):
        value.grad = None
        assert gradient.any()
    expected.backward()
    for value, gradient in zip(pipeline.parameters(), gradients, strict=True):
        assert torch.allclose(value.grad, gradient, atol=1e-6)
    with pytest.raises(InputError, match="3 rows do not divide into 2 microbatches"):
        pipeline.step(images[:3], labels[:3])
    for wrong, why in [
        ({"schedule": "magic"}, "gpipe, 1f1b"),
        ({"axis": "model"}, "name of one"),
        ({"microbatches": 0}, "at least 1"),
    ]:
        with pytest.raises(InputError, match=why):
            parallel.Pipeline(stages, functional.cross_entropy, mesh, **{"microbatches": 2, **wrong})
    for part in (nn.BatchNorm1d(4), nn.Dropout(0.1)):
        with pytest.raises(InputError, match=type(part).__name__):
            parallel.Pipeline([stages[0], part], functional.cross_entropy, mesh, microbatches=2)
