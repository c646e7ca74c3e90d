"""The placements found, against every placement there is, for chains; and for values that go on beside each other."""

import functools
import itertools

import pytest
import torch
from torch import nn

from headrace.runtime.parallel.planner.costs import Cost, Costs, Settings, divides
from headrace.runtime.parallel.planner.layouts import WHOLE, options
from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.rates import Link, Rates
from headrace.runtime.parallel.planner.search import place


def rates(latency, bandwidth):
    return Rates(1e12, 1e12, 1e12, 1e11, 1e-6, (Link(latency, bandwidth),))


def best_of_all(costs):
    """The least seconds by trying everything, for one axis."""
    model, mesh = costs.model, costs.mesh

    def go(at, lying, total):
        if at == len(model.operators):
            yield total + costs.end(lying[-1]).seconds
            return
        operator = model.operators[at]
        inputs = [model.operators[source] for source in operator.inputs]
        given = [lying[source] for source in operator.inputs]
        for option in options(operator, inputs, [words[0] for words in given]):
            if divides(operator, (option.out,), mesh, weight=option.weight == 0):
                needs = [divides(value, (need,), mesh) for value, need in zip(inputs, option.needs, strict=True)]
                if all(needs):
                    yield from go(at + 1, [*lying, (option.out,)], total + costs.of(at, given, (option,)).seconds)

    return min(itertools.chain(*(go(1, [(first,)], 0.0) for first in (0, WHOLE))))


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 256), nn.Linear(256, 64), nn.Linear(64, 128)

    def forward(self, x):
        return self.c(x + self.b(self.a(x).relu()))


def straight():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64), nn.Linear(64, 4096))


@functools.cache
def model_of(build, rows):
    with torch.device("meta"):
        return read_model(build(), (rows, 64))


@pytest.mark.parametrize("latency", [0.0, 1e-6, 1e-4])
@pytest.mark.parametrize("bandwidth", [1e8, 1e10, 1e12])
@pytest.mark.parametrize("rows", [8, 512])
@pytest.mark.parametrize("build", [straight, Skip])
def test_it_is_the_best_of_all(build, rows, latency, bandwidth):
    costs = Costs(model_of(build, rows), (4,), rates(latency, bandwidth), Settings())
    found = place(costs)
    assert sum(found.costs, Cost()).seconds == pytest.approx(best_of_all(costs))


def test_heads_of_attention_are_split_and_rows_stay_beside():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))

        def forward(self, x):
            q, k, v = (part(x).unflatten(-1, (8, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
            return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    with torch.device("meta"):
        model = read_model(Attention(), (2, 10, 64))
    kept = {"q.weight": ((0,),), "out.weight": ((1,),)}
    found = place(Costs(model, (4,), rates(0.0, 1e13), Settings()), kept=kept)
    assert found.weights(model) == {"q.weight": (0,), "k.weight": (0,), "v.weight": (0,), "out.weight": (1,)}
    moved = [option.sums for (option,) in found.chosen]
    assert sum(moved) == 1  # nothing is exchanged up to the sums of the last layer
    assert place(Costs(model, (3,), rates(0.0, 1e13), Settings()), kept={"out.weight": ((1,),)}) is None  # 64 by 3
