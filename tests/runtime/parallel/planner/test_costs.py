"""What is counted for a rank: seconds of collectives, bytes of parameters at the stages of ZeRO."""

import pytest
import torch
from torch import nn

from headrace.runtime.parallel.planner.costs import Costs, Settings, divides
from headrace.runtime.parallel.planner.layouts import WHOLE, Option
from headrace.runtime.parallel.planner.operators import Operator, read_model
from headrace.runtime.parallel.planner.rates import Link, Rates

SIZE = 64 * 64 * 4
ROWS = Option((0,), 0, shared=True)


def costs(**settings):
    with torch.device("meta"):
        model = read_model(nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)), (8, 64))
    return Costs(model, (4,), Rates(1e30, 1e30, 1e30, 1e30, 0.0, (Link(0.0, 1.0),)), Settings(**settings))


@pytest.mark.parametrize(
    ("zero", "moved", "kept"), [(0, 1.5, 4.0), (1, 0.75 + 1.5, 1.0), (2, 0.75 + 0.75, 1.0), (3, 3 * 0.75, 1.0)]
)
def test_zero_moves_parameters_and_keeps_less(zero, moved, kept):
    cost = costs(zero=zero).of(2, [(0,)], [ROWS])
    assert cost.seconds == pytest.approx(moved * SIZE)
    assert cost.parameters == kept * SIZE


def test_a_split_weight_moves_activations_alone():
    cost = costs().of(2, [(WHOLE,)], [Option((WHOLE,), 1, 0, shared=True, sums_back=True)])
    assert cost.seconds == pytest.approx(1.5 * 8 * 64 * 4)
    cost = costs().of(2, [(1,)], [Option((1,), WHOLE, 1, shared=True, sums=True)])
    assert cost.seconds == pytest.approx(1.5 * 8 * 64 * 4)
    assert cost.parameters == SIZE / 4 * 4
    assert costs(training=False).of(2, [(1,)], [Option((1,), WHOLE, 1, shared=True, sums=True)]).parameters == SIZE / 4


def test_rows_divide_evenly_and_classes_need_not():
    value = Operator("v", "linear", "", (), (8, 10), 4)
    assert divides(value, (0, 0), (2, 4))
    assert not divides(value, (0, 0), (4, 4))
    assert not divides(value, (0,), (3,))
    assert not divides(value, (1,), (4,))
    assert divides(value, (1,), (4,), weight=True)
    assert not divides(value, (1,), (16,), weight=True)
    assert not divides(value, (2,), (2,))
