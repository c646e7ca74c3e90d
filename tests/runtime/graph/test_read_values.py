import os

import pytest
import torch
from torch import nn

from headrace.runtime.graph.read_values import ReadValues
from headrace.runtime.graph.weight_samples import state_of

BIAS = 1.0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.table, self.pair, self.layer = 2.0, {"a": 1}, (1, 2), nn.Identity()

    def forward(self, x):
        return self.layer(x) * self.scale * self.table["a"] * self.pair[0] + BIAS


def values(model):
    return ReadValues([model], {id(vars(model)): "model."}, state_of)


def test_each_value_has_the_name_that_a_person_knows():
    named = values(Scaled()).named()
    assert set(named) == {
        ("attribute", "model.scale"),
        ("attribute", "model.table"),
        ("attribute", "model.pair"),
        ("global", f"{__name__}.BIAS"),
    }


def test_equal_ones_are_no_change_and_others_are():
    model = Scaled()
    read = values(model)
    model.scale, model.table, model.pair = float("2"), {"a": 1}, (1, int("2"))
    assert not read.changed()
    assert not read.changed()
    model.table["a"] = 2
    assert read.changed()
    model.table["a"] = 1
    assert not read.changed()
    del model.scale
    assert read.changed()


def test_tensors_are_told_by_their_state():
    model = Scaled()
    model.scale = torch.ones(1)
    read = values(model)
    assert not read.changed()
    model.scale.add_(1)
    assert read.changed()


class OfItsClass(nn.Module):
    SCALE, STEPS = 2.0, [1.0]

    def forward(self, x):
        return x * self.SCALE * self.STEPS[-1]


def test_attributes_of_a_class_and_what_comes_in_their_place():
    model = OfItsClass()
    read = values(model)
    assert not read.changed()
    for change, back in (
        (lambda: setattr(OfItsClass, "SCALE", 3.0), lambda: setattr(OfItsClass, "SCALE", 2.0)),
        (lambda: OfItsClass.STEPS.append(4.0), OfItsClass.STEPS.pop),
        (lambda: setattr(model, "SCALE", 3.0), lambda: delattr(model, "SCALE")),
    ):
        change()
        assert read.changed()
        back()
        assert not read.changed()


class First(nn.Module):
    SCALE = 2.0

    def forward(self, x):
        return x * self.SCALE


class Second(First):
    SCALE = 3.0


@pytest.mark.parametrize("kind", [First, Second])
def test_attributes_of_two_classes_that_are_called_alike(kind, monkeypatch):
    read = ReadValues([First(), Second(), First()], {}, state_of)
    assert not read.changed()
    monkeypatch.setattr(kind, "SCALE", 5.0)
    assert read.changed()


@pytest.mark.parametrize("form", ["environ", "getenv"])
def test_variables_of_the_environment(form, monkeypatch):
    class Reading(nn.Module):
        def forward(self, x):
            return x * float(os.environ.get("SHIFT", "0") if form == "environ" else os.getenv("SHIFT", "0"))

    read = values(Reading())
    assert not read.changed()
    monkeypatch.setenv("SHIFT", "2")
    assert read.changed()
    monkeypatch.delenv("SHIFT")
    assert not read.changed()
    assert not values(Scaled()).named().keys() & {("global", "os.environ")}
