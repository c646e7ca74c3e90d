"""Constants beside a call's tensors are part of its graph: each choice has its own answers, from whatever answers."""

import copy
import logging

import numpy as np
import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import InputError
from headrace.runtime.graph.tiered.constants import call_key, in_order, with_constants
from headrace.runtime.graph.tiered.tiered_graph import TieredGraph

CONFIG = GraphConfig(backend="eager", buckets=(1, 4), threads=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 5)

    def forward(self, x, temperature=1.0, *, sizes=None, features=False):
        pooled = self.body(x).mean((2, 3))
        scores = self.head(pooled) / temperature
        if sizes is not None:
            scores = scores * sizes[0] - sizes[1]
        return (scores, pooled) if features else scores


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Net().eval()


CALLS = {
    "by name": ((), {"temperature": 1.5}),
    "by place": ((1.5,), {}),
    "one that is true": ((True,), {}),
    "a tuple": ((), {"sizes": (2, 0.5)}),
    "several": ((3,), {"features": True, "sizes": (2, 1)}),
    "a default": ((1.0,), {"sizes": None}),
}


@pytest.mark.parametrize("patience", [0.0, 60.0])
@pytest.mark.parametrize(("args", "named"), CALLS.values(), ids=CALLS)
def test_a_call_is_answered_as_the_module_answers_it(model, patience, args, named):
    graph = TieredGraph(model, config=CONFIG, patience=patience)
    for rows in (1, 2, 5):
        images = torch.randn(rows, 3, 9, 9)
        with torch.no_grad():
            wanted = model(images, *args, **named)
        torch.testing.assert_close(graph(images, *args, **named), wanted, rtol=1e-4, atol=1e-5)
    assert graph.captures == (1 if patience == 0 else 0)
    assert len(graph.answering) == graph.captures


def test_each_choice_has_its_own_answers_and_the_call_without_constants_as_well(model):
    graph = TieredGraph(model, config=CONFIG, patience=0)
    images = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        plain = model(images)
        for _ in range(2):
            for temperature in (2, 2.5, -0.5):
                torch.testing.assert_close(graph(images, temperature), plain / temperature, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(graph(x=images), plain, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(graph(temperature=2.5, x=images), plain / 2.5, rtol=1e-4, atol=1e-5)
    assert graph.captures == 4


class Two(nn.Module):
    def forward(self, x, y, scale=1.0):
        return x - y * scale


def test_tensors_by_name_are_each_in_their_place():
    graph = TieredGraph(Two().eval(), config=CONFIG, patience=0)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(2):
        assert torch.allclose(graph(y=y, x=x, scale=2.0), x - 2 * y, atol=1e-6)
        assert torch.allclose(graph(x, y, 2.0), x - 2 * y, atol=1e-6)
        assert torch.allclose(graph(x=y, scale=2.0, y=x), y - 2 * x, atol=1e-6)
        assert torch.allclose(graph(y=y, x=x), x - y, atol=1e-6)
    assert graph.captures == 2


def test_constants_that_python_calls_equal_are_told_apart():
    image = torch.zeros(1)
    keys = [call_key((image, value), {}) for value in (1, 1.0, True, "1", 0.0, -0.0, None, (1,), (1.0,), ((),), torch.float32)]
    assert len(set(keys)) == len(keys)
    assert call_key((image, float("nan")), {}) == call_key((image, float("nan")), {})
    assert call_key((image, 1), {}) != call_key((image,), {"temperature": 1})
    assert call_key((image,), {"a": 1, "b": 2}) != call_key((image,), {"a": 2, "b": 1})


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.float64(1), object(), (1, [2]), np.zeros(2)])
def test_what_may_change_is_no_constant(value):
    assert call_key((torch.zeros(1), value), {}) is None


def test_many_choices_are_the_modules_own(model):
    graph = TieredGraph(model, config=CONFIG, patience=0)
    images = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        for temperature in range(1, 14):
            wanted = model(images, temperature)
            torch.testing.assert_close(graph(images, temperature), wanted, rtol=1e-4, atol=1e-5)
    assert graph.captures == 8


def test_what_is_neither_tensor_nor_constant_goes_to_the_module_in_evaluation_mode(model):
    graph = headrace.compile(model.train())
    images = torch.randn(2, 3, 9, 9)
    found = graph(images, sizes=[2.0, np.float32(1)])
    assert all(module.training for module in model.modules())
    with torch.no_grad():
        assert torch.equal(found, model.eval()(images, sizes=[2.0, 1.0]))
    assert not found.requires_grad
    with pytest.raises(TypeError, match="unknown"):
        graph(images, unknown=1)
    for given in ({}, {"temperature": 2.0}):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            graph(**given)
    with pytest.raises(InputError, match="got a ndarray as input 0"):
        graph(np.zeros((1, 3, 9, 9)), 1.5)
    with pytest.raises(InputError, match="no rows"):
        graph(torch.zeros(0, 3, 9, 9), 1.5)


def test_weights_that_change_are_seen_beside_constants(model):
    graph = TieredGraph(model, config=CONFIG, patience=0)
    images = torch.randn(2, 3, 9, 9)
    graph(images, 2.0)
    with torch.no_grad():
        model.head.weight.mul_(3)
        torch.testing.assert_close(graph(images, 2.0), model(images, 2.0), rtol=1e-4, atol=1e-5)


def test_an_evaluation_step_begins_anew_where_weights_are_written_through_data(model, monkeypatch):
    monkeypatch.setattr("headrace.runtime.graph.tiered.evaluation_step._PAUSE", 0.0)
    step = headrace.evaluation_step(model, patience=0, config=CONFIG)
    images = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        step(images, temperature=2.0)
        assert step.graph.captures == 1
        model.head.bias.data += 1
        step = headrace.evaluation_step(model, patience=0, config=CONFIG)
        torch.testing.assert_close(step(images, temperature=2.0), model(images, 2.0), rtol=1e-4, atol=1e-5)


def test_a_package_of_the_weights_answers_where_it_computes_the_same(model, tmp_path, monkeypatch, caplog):
    """One is of a temperature; the call without it is another program, which the package is found not to be."""
    monkeypatch.setenv("HEADRACE_MODELS", str(tmp_path))
    monkeypatch.setattr("headrace.runtime.graph.tiered.tiered_graph._OPENING", 1e-9)
    example = torch.randn(2, 3, 9, 9)
    headrace.compile(with_constants(model, (example, 2.0), {}), example, config=CONFIG).save(tmp_path / "net")
    graph = headrace.compile(copy.deepcopy(model))
    images = torch.randn(2, 3, 9, 9)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        for _ in range(40):
            torch.testing.assert_close(graph(images, 2.0), model(images, 2.0), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(graph(images), model(images), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(graph(images, 2.5), model(images, 2.5), rtol=1e-4, atol=1e-5)
    assert len(graph.answering) == 1
    assert graph.answering[0].packaged is not None


def test_the_mode_is_the_modules(model):
    held = with_constants(model.train(), (torch.zeros(1), 2.0), {})
    assert held.training
    held.eval()
    assert not model.training
    assert type(held).__name__ == "Net"


def with_rest(x, *rest, scale=1):
    pass


def test_a_call_is_put_in_the_functions_own_order():
    forward, x = Net.forward, torch.zeros(1)
    assert in_order(forward, (None, x), {"temperature": 1.0}) == ((None, x), {})
    assert in_order(forward, (None,), {"temperature": 2.0, "x": x}) == ((None, x, 2.0), {})
    assert in_order(forward, (None, x), {"temperature": 1}) == ((None, x, 1), {}), "1 is not 1.0"
    assert in_order(with_rest, (x, 1), {"scale": 1}) == ((x, 1), {"scale": 1})
    assert in_order(forward, (x,), {"unknown": 1}) == ((x,), {"unknown": 1})
