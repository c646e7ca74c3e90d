"""What a look at a module sees: changed weights, parts in training mode, tensors that its calls keep."""

import torch
from torch import nn

from headrace.runtime.graph.tiered.seen import Seen, trains


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.features = None

    def forward(self, x):
        self.features = x
        return self.layer(x)


def test_a_write_to_the_last_tensor_is_a_change():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).eval()
    seen = Seen(model)
    assert not seen.changed()
    with torch.no_grad():
        model[1].bias.add_(1)
    assert seen.changed()
    assert not Seen(model).changed()


def test_a_dropout_that_is_to_draw_is_seen_and_a_linear_layer_in_training_mode_is_not():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).eval()
    model[0].train()
    assert not Seen(model).trains_inside()
    model[1].train()
    assert Seen(model).trains_inside()
    assert not Seen(model.train()).trains_inside(), "the whole is in training mode"
    assert trains(model)


def test_what_calls_keep_for_the_script_is_named():
    model = Keeping().eval()
    seen = Seen(model)
    assert seen.kept_for_others() is None
    model(torch.zeros(1, 3))
    assert seen.kept_for_others() == "features"


def test_tensors_that_are_not_there_yet_are_lazy():
    assert Seen(nn.LazyLinear(2)).lazy
    assert not Seen(nn.Linear(2, 2)).lazy
