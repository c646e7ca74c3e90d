import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.runtime.inspect.recompiles import Recompile


class Step(headrace.Graph):
    def __init__(self, model, optimizer, config=None, **options):
        super().__init__(config=config)
        self.model = model
        self.add_optimizer(optimizer, **options)

    def build(self, rows, targets):
        loss = nn.functional.mse_loss(self.model(rows).float(), targets)
        loss.backward()
        return loss


def made(config=None, **options):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    return Step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), config, **options)


def run(graph, rows=5, dtype=torch.float32):
    graph(torch.randn(rows, 4), torch.randn(rows, 2, dtype=dtype))


def settled(graph):
    for _ in range(3):
        run(graph)
    return graph.captures


def freeze(graph):
    graph.model[0].requires_grad_(False)


def momentum(graph):
    graph._trainer.optimizer.param_groups[0]["momentum"] = 0.5


def strided(graph):
    graph.model[0].weight.data = graph.model[0].weight.data.t().contiguous().t()


def evaluation(graph):
    graph.model[1].eval()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (freeze, "of another shape, layout, dtype or requires_grad: 0.weight, 0.bias"),
        (momentum, "momentum is 0.5, before 0.9"),
        (strided, "of another shape, layout, dtype or requires_grad: 0.weight"),
        (evaluation, "a module changed between training and evaluation mode"),
    ],
)
def test_why_a_step_was_captured_again(change, reason):
    graph = made()
    before = settled(graph)
    change(graph)
    run(graph)
    assert graph.captures == before + 1
    assert graph.recompiles[-1] == Recompile(before + 1, reason)


def test_other_inputs_and_autocast_are_reasons():
    graph = made()
    before = settled(graph)
    run(graph, rows=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(graph)
    graph(torch.randn(4, 5).t(), torch.randn(5, 2))
    assert [item.reason for item in graph.recompiles[before - 1 :]] == [
        "input rows has shape (3, 4), before (5, 4); input targets has shape (3, 2), before (5, 2)",
        "autocast is torch.bfloat16, before off",
        "input rows has strides (1, 5), before contiguous",
    ]
    assert f"captures: {before + 3}" in str(graph)


def test_phases_of_accumulation_are_told_apart():
    graph = made(accumulate=3)
    for _ in range(6):
        run(graph)
    reasons = [item.reason for item in graph.recompiles]
    assert any("this step updates" in reason for reason in reasons)
    assert any("gradients stand behind parameters before it" in reason for reason in reasons)
    count = graph.captures
    for _ in range(9):
        run(graph)
    assert graph.captures == count


def test_kinds_of_step_are_bounded_by_the_configuration_and_dropped_ones_are_captured_again():
    graph = made(GraphConfig(backend="captured", max_captures=1))
    before = settled(graph)
    for rows in (3, 4, 6):
        run(graph, rows)
    assert len(graph.steps) == 2
    run(graph, 3)
    assert graph.captures == before + 4


def test_steps_that_run_eagerly_as_configured_are_no_captures():
    graph = made(GraphConfig(backend="eager"))
    settled(graph)
    assert (graph.captures, graph.recompiles) == (0, ())
