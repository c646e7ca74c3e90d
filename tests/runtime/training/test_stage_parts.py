"""What a rank keeps of parameters that are dealt out, and gets back; on several ranks: parallel/test_stage_parameters.py."""

import contextlib
import copy

import pytest
import torch
from torch import nn

from headrace import parallel
from headrace.runtime.parallel.schedule import PipelineMesh
from headrace.runtime.parallel.stage_parameters import elsewhere, parts
from headrace.runtime.training.stage_parts import DroppedParameters, Layouts


@pytest.fixture
def mesh(alone):
    return PipelineMesh(parallel.world("cpu", (1, 1)), microbatches=1)


def test_dropped_parameters_come_back_as_they_were(mesh):
    model = nn.Sequential(nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last), nn.Linear(4, 2))
    model.register_parameter("scale", nn.Parameter(torch.ones(())))
    before, strides = copy.deepcopy(model.state_dict()), model[0].weight.stride()
    layouts = Layouts(mesh)
    dropped = DroppedParameters(layouts, mesh)
    dropped.drop(model.parameters())
    assert elsewhere(model) == set(parts(model)) == set(before) - {"scale"}, "a number is not dealt out"
    assert model[0].weight.shape == (0,)
    assert model[0].weight in dropped
    assert model.scale not in dropped
    assert torch.equal(dropped.gathered([model[1].weight])[0], before["1.weight"])
    with dropped.filled():
        assert not elsewhere(model)
        assert model[0].weight.stride() == strides
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        with torch.no_grad():
            model[1].bias.fill_(7)
    assert model[1].bias.shape == (0,)
    dropped.update({model[0].bias: torch.zeros(4)})
    with contextlib.suppress(ZeroDivisionError), dropped.filled():
        assert bool((model[1].bias == 7).all())
        assert not model[0].bias.any()
        raise ZeroDivisionError
    assert model[0].bias.shape == (0,)


def test_a_part_is_as_long_as_the_layout_says(mesh):
    value = nn.Parameter(torch.randn(5, 3))
    layout = Layouts(mesh)[value]
    assert layout.part_shape == layout.part(value.detach()).shape
    assert layout.around(layout.part(value.detach())).shape == value.shape
