"""What is read of a model's graph."""

import pytest
import torch
from torch import nn

from headrace.runtime.parallel.planner.operators import Model, described, read_model


def test_work_and_shapes_are_those_of_the_layers():
    parts = (nn.Conv2d(4, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    model = read_model(nn.Sequential(*parts), (5, 4, 6, 6))
    kinds = [(operator.kind, operator.shape) for operator in model.operators]
    assert kinds == [
        ("input", (5, 4, 6, 6)), ("conv", (5, 8, 6, 6)), ("batch_norm", (5, 8, 6, 6)), ("pointwise", (5, 8, 6, 6)),
        ("view", (5, 288)), ("linear", (5, 10)),
    ]  # fmt: skip
    assert model.operators[1].work == 2 * (5 * 8 * 36) * (2 * 9)
    assert model.operators[-1].work == 2 * 5 * 288 * 10
    assert model.operators[-1].weights == ("4.weight", "4.bias")
    assert model.operators[-1].direct
    assert model.weights["4.weight"] == 288 * 10 * 4
    assert model.uncuttable == ("1 (BatchNorm2d)",)


def test_a_product_with_a_bias_is_as_deep_as_its_factors():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(7, 3)), nn.Parameter(torch.ones(3))

        def forward(self, x):
            return torch.addmm(self.bias, x, self.weight)

    assert read_model(Biased(), (5, 7)).operators[-1].work == 2 * 5 * 3 * 7


def test_parameters_that_are_shared_are_counted_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.last.weight = self.first.weight

        def forward(self, x):
            return self.last(self.first(x))

    model = read_model(Tied(), (2, 8))
    assert model.weights == {"first.weight": 256}
    assert [operator.weights for operator in model.operators[1:]] == [("first.weight",)] * 2


def test_a_weight_that_is_computed_is_not_split():
    module = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    model = read_model(module, (2, 8))
    (linear,) = [operator for operator in model.operators if operator.kind == "linear"]
    assert not linear.direct
    assert len(linear.weights) == 3


def test_a_description_that_was_tampered_with_is_refused():
    data = described(lambda: nn.Linear(8, 4), (2, 8))
    assert Model.from_json(data).rows == 2
    for change in ({"inputs": [7]}, {"shape": ["a"]}, {"weights": ["ghost"]}, {"work": "much"}, {"unknown": 1}):
        wrong = {**data, "operators": [data["operators"][0], {**data["operators"][1], **change}]}
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind, so that a stranger's answer is one message
            Model.from_json(wrong)


def test_no_memory_is_taken_for_weights():
    with torch.device("meta"):
        module = nn.Linear(1_000_000, 1_000_000)
    assert read_model(module, (2, 1_000_000)).weights["weight"] == 4 * 10**12
