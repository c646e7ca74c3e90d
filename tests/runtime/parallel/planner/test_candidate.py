"""The words of a plan; whole plans: test_plan and test_pipelines."""

import json

import torch
from torch import nn

from headrace.runtime.parallel.planner.candidate import Plan, conversions, place_of, word_of, words_of
from headrace.runtime.parallel.planner.costs import Costs, Settings
from headrace.runtime.parallel.planner.layouts import WHOLE
from headrace.runtime.parallel.planner.operators import read_model
from headrace.runtime.parallel.planner.rates import Link, Rates
from headrace.runtime.parallel.planner.search import place

RATES = Rates(linear=1e12, conv=1e12, matmul=1e12, memory=1e12, operator=0.0, links=(Link(1e-6, 1e9),))


def model():
    with torch.device("meta"):
        return read_model(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), (4, 8))


def test_words():
    assert [word_of(layout) for layout in (WHOLE, 0, 3)] == ["broadcast", "split(0)", "split(3)"]
    assert words_of([0, WHOLE]) == ("split(0)", "broadcast")


def test_operators_are_named_with_their_modules():
    assert [place_of(model(), at) for at in (1, 2, 3)] == ["0.linear", "1.relu", "2.linear_1"]


def test_conversions_around_columns_and_rows():
    """What comes in whole is converted to the same, which sums its gradient; partial sums become whole."""
    kept = {"0.weight": ((0,),), "2.weight": ((1,),)}
    placed = place(Costs(model(), (2,), RATES, Settings()), kept=kept, start=(WHOLE,))
    assert conversions(model(), placed) == (("2", "linear_1", ("partial_sum",), ("broadcast",)),)
    whole = place(Costs(model(), (2,), RATES, Settings()), start=(0,), allowed=lambda axis, option: option.weight == WHOLE)
    assert all("partial_sum" not in before for *_, before, _ in conversions(model(), whole))


def test_a_plan_is_json():
    plan = Plan("a", 1.0, 0.5, 0.5, 8.0, fits=True, layouts={"w": ("split(0)",)}, stages=(("0.linear", "2.linear_1"),))
    read = json.loads(json.dumps(plan.to_json()))
    assert read["layouts"] == {"w": ["split(0)"]}
    assert (read["tensor"], read["checkpoint"]) == ("", [])
