"""How a user says which modules are which stage."""

import pytest
import torch
from torch import nn

import headrace
from headrace import parallel
from headrace.errors import InputError
from tests.runtime.training.staged_cases import Step, batch, net, sgd


def graph_of(*parts, model=None):
    model = model or net("mlp")
    graph = Step(model, sgd(model))
    for part in parts:
        part(graph)
    return graph


def stage(number, name="first"):
    return lambda graph: graph.set_stage(getattr(graph.model, name), number)


def placed(graph):
    graph.add_pipeline(parallel.world("cpu"), microbatches=2)


def test_what_is_no_stage():
    graph = graph_of()
    with pytest.raises(ValueError, match="takes an nn.Module, got a str"):
        graph.set_stage("model.first", 0)
    for wrong in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match="an integer from 0 on"):
            graph.set_stage(graph.model.first, wrong)


def test_a_graph_lacks_something(alone):
    with pytest.raises(InputError, match="no ranks for them; call add_pipeline"):
        graph_of(stage(0))(*batch("mlp", 0))
    with pytest.raises(InputError, match="0 stages"):
        graph_of(placed)(*batch("mlp", 0))
    with pytest.raises(InputError, match=r"set_stage was given \[1\]"):
        graph_of(stage(1), placed)(*batch("mlp", 0))
    with pytest.raises(ValueError, match="a pipeline already"):
        graph_of(placed, placed)

    class Untrained(headrace.Graph):
        def __init__(self):
            super().__init__()
            self.model = net("mlp")
            self.set_stage(self.model.first, 0)

        def build(self, rows):
            return self.model(rows)

    with pytest.raises(InputError, match="trains; call add_optimizer"):
        Untrained()(batch("mlp", 0)[0])


def test_stages_are_the_graphs_and_stay_once_it_has_run(alone):
    """Not those of a config that two graphs share; and in whichever order a graph is told."""
    config = headrace.GraphConfig()
    one, two = graph_of(stage(0), placed, stage(1, "second")), graph_of()
    one.config = two.config = config
    losses = [graph(*batch("mlp", 0))[0] for graph in (one, two)]
    assert torch.allclose(*losses, rtol=1e-12)
    assert "2 stages on 1 ranks" in str(one)
    assert "stages" not in str(two)
    with pytest.raises(ValueError, match="stages stay as they are"):
        one.set_stage(one.model.third, 2)


def test_a_state_goes_from_a_graph_with_stages_to_one_without(alone):
    one, two = graph_of(stage(0), stage(1, "last"), placed), graph_of()
    one(*batch("mlp", 0))
    two.load_state_dict(one.state_dict())
    assert torch.allclose(one(*batch("mlp", 1))[0], two(*batch("mlp", 1))[0], rtol=1e-12)


def test_modules_inside_belong_to_the_innermost_stage(alone):
    model = nn.Sequential(nn.Linear(12, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8)), nn.Linear(8, 12)).double()
    graph = graph_of(
        lambda graph: graph.set_stage(model, 0), lambda graph: graph.set_stage(model[1][1], 1), placed, model=model
    )
    with pytest.raises(InputError, match="2 is of stage 0 and is called when stage 1 has begun"):
        graph(*batch("mlp", 0))
