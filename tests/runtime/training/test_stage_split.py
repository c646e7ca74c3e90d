"""The parts of a step compute together what the step does."""

import pytest
import torch

from headrace import parallel
from tests.runtime.training.staged_cases import Step, batch, lay, net, sgd


@pytest.fixture
def step(alone):
    def of(name):
        model = net(name)
        graph = Step(model, sgd(model), parallel.world("cpu"))
        graph(*batch(name, 0))
        (run,) = graph._trainer._runs.values()
        return graph, run.step

    return of


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit"])
def test_parts_one_after_the_other(step, name):
    graph, split = step(name)
    images, labels = batch(name, 1, 8)
    values = {**graph._trainer._given(split), **dict(zip(split.inputs, (images, labels), strict=True))}
    assert len(split.parts) == 2 * split.stages == 8
    for number, part in enumerate(split.parts):
        for given in part.inputs:
            assert split.made.get(given, -1) < number
            assert given not in split.made or number in split.used[given]
        results = part.program(*(values[given] for given in part.inputs))
        for made, value in zip(part.outputs, results, strict=True):
            shape, strides, dtype = split.layouts[made]
            assert (tuple(value.shape), value.dtype) == (shape, dtype)
            assert value.stride() == strides
            values[made] = value.detach()
    loss = torch.nn.functional.cross_entropy(graph.model(images), labels)
    loss.backward()
    assert torch.allclose(values[split.leaves[0]], loss.detach(), rtol=1e-12)
    for parameter, value in graph._trainer.state.parameters.items():
        assert (parameter in split.gradients) == (value.grad is not None)
        if value.grad is not None:
            assert torch.allclose(values[split.gradients[parameter]], value.grad, rtol=1e-9, atol=1e-12)


def test_who_has_what(step):
    _, split = step("mlp")
    owners = {name.split(".")[1]: stage for name, stage in split.owners.items()}
    assert owners == {"first": 0, "second": 1, "between": 1, "third": 2, "last": 3}
    assert any(
        made == 0 and {1, 2} <= set(split.used[name]) for name, made in split.made.items()
    )  # a value that passes a stage by
    assert [split.stage(part) for part in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert [split.part(stage, backward=True) for stage in range(4)] == [7, 6, 5, 4]
    assert len(split.divisors) == 1


def test_leaves_of_global_parameters_are_whole_and_operations_are_told_apart(alone):
    mesh = parallel.world("cpu", (1, 1))
    model = lay("cnn", net("cnn"), mesh["data"])
    graph = Step(model, sgd(model), mesh)
    graph(*batch("cnn", 0))
    (run,) = graph._trainer._runs.values()
    found = run.step.operations()
    assert len(found) == 8
    assert any("convolution" in name for name in found[0])
    assert any("addmm" in name for name in found[3])
    assert not any("slice" in name for part in found for name in part)
    _, scores = run.step.leaves
    assert run.step.shape(scores) == (8, 512)
    assert run.step.wholes[scores].placements == (parallel.sbp.split(1),)
