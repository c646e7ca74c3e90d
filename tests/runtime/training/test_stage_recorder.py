"""Operations of a traced step know their stage, forward and backward."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from headrace.runtime.training.side_effects import SideEffectError
from headrace.runtime.training.stage_recorder import StageRecorder, place_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 3)

    def forward(self, rows):
        return self.second(self.first(rows.exp()).sin()).cos()


def traced(net, recorder, call=None):
    def step(rows):
        recorder.reset()
        with recorder:
            values = (call or net)(rows)
            values.sum().backward()
            return values * 2

    with recorder.following():
        return make_fx(step, tracing_mode="real")(torch.randn(2, 3, requires_grad=True))


def places(program):
    found = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            found.setdefault(node.target.__name__.partition(".")[0], []).append(place_of(node))
    return found


def test_each_operation_has_its_pass_stage_and_module():
    net = Net()
    found = places(traced(net, StageRecorder(nn.ModuleList([net]), {net.first: 0, net.second: 1})))
    assert [(one.stage, one.backward) for one in found["exp"]] == [(0, False)]
    assert [(one.stage, one.backward, one.module) for one in found["tanh"]] == [(0, False, "first.1")]
    assert [(one.stage, one.module) for one in found["addmm"]] == [(0, "first.0"), (1, "second")]
    assert [one.stage for one in found["tanh_backward"]] == [0]
    assert [(one.stage, one.backward) for one in found["cos"]] == [
        (1, False),
        (0, True),
    ]  # that of cos, and that sin goes back by
    assert [(one.stage, one.backward) for one in found["sin"]] == [(0, False), (1, True)]
    assert [one.after for one in found["mul"] if not one.backward] == [True]  # of the user's own, after backward()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_activations_that_are_computed_again_do_not_begin_a_stage():
    net = Net()
    recorder = StageRecorder(nn.ModuleList([net]), {net.first: 0, net.second: 1})
    found = places(traced(net, recorder, lambda rows: net.second(checkpoint(net.first, rows, use_reentrant=False))))
    assert recorder.problem is None
    assert [(one.stage, one.backward) for one in found["tanh"]] == [(0, False), (0, True)]
    assert recorder.stages_in(net) == [0, 1]
    assert recorder.stages_in(net.first[1]) == [0]
    assert recorder.stages_in(nn.Tanh()) == []


def test_a_module_of_a_stage_that_is_over_stops_the_trace():
    net = Net()
    recorder = StageRecorder(nn.ModuleList([net]), {net.first: 1, net.second: 0})
    with pytest.raises(SideEffectError, match="second is of stage 0 and is called when stage 1 has begun"):
        traced(net, recorder)
    assert recorder.problem is not None
