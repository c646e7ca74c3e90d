"""Hooks that look on at a model, and those that are part of it."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from headrace.runtime.graph.observers import observers, place_of


class Scaled(nn.Module):
    """Its hooks compute what it returns."""

    def __init__(self, kind):
        super().__init__()
        self.body, self.last = nn.Linear(3, 3), None

        def note(*given):
            self.last = given[-1]

        self.body.register_forward_hook(
            {"method": self.note, "closure": note, "partial": functools.partial(note_in, self)}[kind]
        )

    def note(self, module, inputs, output):
        self.last = output

    def forward(self, x):
        self.body(x)
        return self.last * 2


def note_in(owner, module, inputs, output):
    owner.last = output


class Recorder:
    def __init__(self, layer):
        self.seen = []
        self.handle = layer.register_forward_hook(self.note)

    def note(self, module, inputs, output):
        self.seen.append(output)

    def __call__(self, module, inputs):
        self.seen.append(inputs)


def found(model):
    return [hooks[key] for hooks, key in observers(list(model.modules()))]


@pytest.mark.parametrize("kind", ["method", "closure", "partial"])
def test_what_a_model_registers_for_itself_is_part_of_it(kind):
    model = Scaled(kind)
    model(torch.ones(1, 3))
    assert found(model) == []


def test_what_libraries_register_is_part_of_a_model():
    old = nn.utils.weight_norm(nn.Linear(3, 3)) if hasattr(nn.utils, "weight_norm") else nn.Linear(3, 3)
    assert found(nn.Sequential(weight_norm(nn.Linear(3, 3)), nn.utils.spectral_norm(nn.Linear(3, 3)), old)) == []


def test_what_a_script_registers_looks_on_until_it_is_removed():
    model, seen = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []
    recorder = Recorder(model[0])
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    model[1].register_forward_hook(functools.partial(note_in, recorder))
    model.register_forward_pre_hook(recorder)
    assert len(found(model)) == 4
    path, line = place_of(recorder.note)
    assert (path, line) == (__file__, Recorder.note.__code__.co_firstlineno)
    assert place_of(recorder)[1] == Recorder.__call__.__code__.co_firstlineno
    recorder.handle.remove()
    assert len(found(model)) == 3


def test_what_is_not_written_in_python_has_no_place():
    assert place_of(functools.partial(len)) == ("", 0)
