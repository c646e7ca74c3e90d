"""What a call of the module does and no call of a graph is told, or left to the module."""

import logging

import pytest
import torch
from torch import nn

import headrace
from headrace.runtime.graph.left_undone import acting_otherwise, left_undone, set_for_others
from headrace.runtime.graph.tiered.tiered_graph import TieredGraph

CONFIG = headrace.GraphConfig(precision="fp32", backend="eager", buckets=(2,))
IMAGES = torch.randn(2, 3, 8, 8)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 3))


class Keeping(nn.Module):
    """Keeps what it computed on the way for whoever called it, and a grid for itself."""

    def __init__(self):
        super().__init__()
        self.body, self.features, self.grid, self.size = network(), None, None, ()

    def forward(self, x):
        if self.grid is None:
            self.grid = torch.ones(1)
        self.size = tuple(x.shape)
        self.features = self.body[:4](x * self.grid)
        return self.body[4:](self.features)


class Reads(nn.Module):
    """What one module leaves, another reads."""

    def __init__(self):
        super().__init__()
        self.inner = Leaves()

    def forward(self, x):
        return self.inner(x) + self.inner.loss


class Leaves(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = None

    def forward(self, x):
        self.loss = x.mean(dim=(1, 2, 3), keepdim=True)
        return x


def test_which_attributes_are_for_others():
    model = Keeping()
    assert [name for _, name in set_for_others(list(model.modules()))] == ["features", "size"]
    assert set_for_others(list(Reads().modules())) == []
    assert [name for _, name in set_for_others(list(Leaves().modules()))] == ["loss"]
    assert set_for_others(list(torch.jit.script(network()).modules())) == []


def test_which_layers_compute_something_else_in_training_mode():
    layers = [nn.Linear(2, 2), nn.Dropout(0.0), nn.Dropout(0.1), nn.BatchNorm2d(2), nn.MultiheadAttention(4, 2), nn.LSTM(2, 2)]
    assert acting_otherwise(layers) == layers[2:4]


class AsksItsPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.other = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.other(self.part(x)) if self.part.training else self.part(x)


class AsksItself(AsksItsPart):
    def forward(self, x):
        return self.part(x) * 2 if self.training else self.part(x)


def test_parts_whose_mode_is_asked_by_what_has_them_act_otherwise_too():
    asking, itself = AsksItsPart(), AsksItself()
    assert acting_otherwise(list(asking.modules())) == [asking, asking.part, asking.other]
    assert acting_otherwise(list(itself.modules())) == [itself]
    asking.eval().part.train()
    graph, x = TieredGraph(asking, patience=0.0), torch.randn(2, 2)
    with torch.no_grad():
        assert torch.equal(graph(x), asking(x))


def told(model, caplog):
    with caplog.at_level(logging.WARNING, logger="headrace.graph"):
        graph = headrace.compile(model, IMAGES, config=CONFIG)
        graph(IMAGES[:, :, :4, :4].repeat(1, 1, 2, 2))
    return [record.getMessage() for record in caplog.records]


def test_a_graph_says_what_its_calls_leave_undone(caplog):
    model = nn.Sequential(Leaves(), network().eval()).eval()
    assert told(model, caplog) == [
        "Sequential: forward of Leaves sets 'loss', which a graph's call leaves as it is; return it, or call the model itself"
    ]


def test_a_graph_tells_of_hooks_and_of_layers_that_train(caplog):
    model = network().eval()
    model[0].register_forward_hook(lambda layer, inputs, output: None)
    model[4].train()
    trains, hook = told(model, caplog)
    assert "a Dropout is in training mode inside a model in evaluation mode, and the graph evaluates it" in trains
    assert f"a hook ({__file__}:" in hook
    assert "what it records of later calls is nothing" in hook


def test_nothing_is_told_where_nothing_is_left(caplog):
    assert told(network(), caplog) == []  # in training mode as a whole
    assert list(left_undone([])) == []


def test_layers_that_train_inside_a_model_that_does_not_are_the_modules_own(caplog):
    model = network().eval()
    model[4].train()
    graph = TieredGraph(model, patience=0, config=CONFIG)
    assert not torch.equal(graph(IMAGES), graph(IMAGES))
    assert graph.captures == 0
    assert caplog.text.count("parts of it are in training mode") == 1
    model[1].train()
    before = model[1].running_mean.clone()
    graph(IMAGES)
    assert not torch.equal(model[1].running_mean, before)
    model.eval()
    assert torch.equal(graph(IMAGES), graph(IMAGES))
    assert graph.captures == 1


@pytest.mark.parametrize("patience", [0.0, 1e-6])
def test_a_model_whose_calls_leave_tensors_for_the_script_answers_itself(patience, caplog):
    model = nn.Sequential(Leaves(), network()).eval()
    graph = TieredGraph(model, patience=patience, config=CONFIG)
    for factor in (1.0, 2.0, 3.0):
        graph(IMAGES * factor)
        assert torch.equal(model[0].loss, (IMAGES * factor).mean(dim=(1, 2, 3), keepdim=True))
    assert graph.captures == 0
    assert caplog.text.count("forward keeps tensors in 'loss'") == 1


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.size, self.calls = network(), (), 0

    def forward(self, x):
        self.size = tuple(x.shape)
        self.calls += 1
        return self.body(x)


def test_a_model_that_notes_numbers_is_captured():
    model = Noting().eval()
    graph = TieredGraph(model, patience=0, config=CONFIG)
    torch.testing.assert_close(graph(IMAGES), model(IMAGES))
    assert graph.captures == 1
