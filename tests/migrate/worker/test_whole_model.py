"""Whole models that were pickled: their weights are read, their code and what a hostile file adds is not executed."""

import argparse
import copyreg
import functools
import os
import pathlib
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from headrace.errors import ArtifactError
from headrace.migrate.worker.checkpoint import fits, load_weights, outputs_of
from headrace.migrate.worker.whole_model import Inert, load_with_classes, read_pickled, weights_in


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU())
        self.head = nn.Linear(4, 7)
        self.activation = nn.functional.relu
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.register_parameter("bias", None)

    def __setstate__(self, state):
        open("executed", "w").close()
        super().__setstate__(state)


class Payload:
    def __init__(self, function=os.system, *arguments):
        self.call = function, arguments or ("touch executed",)

    def __reduce__(self):
        return self.call


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_weights_of_a_pickled_model_are_those_of_its_state(wrapped):
    trained, model = Network(), Network()
    torch.save({"model": trained, "epoch": 2} if wrapped else trained, "whole.pth")
    load_weights(model, "whole.pth")
    assert list(model.state_dict()) == list(trained.state_dict())
    for name, value in trained.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    assert fits(Network(), "whole.pth")
    assert outputs_of("whole.pth") == 7
    assert not os.path.exists("executed")


def test_what_a_hostile_model_would_call_is_not_called():
    model = Network()
    for attribute in (
        Payload(),
        Payload(eval, "open('executed', 'w')"),
        Payload(copyreg._reconstructor, Network, object, None),
    ):
        model.extra = attribute
        torch.save(model, "whole.pth")
        try:
            content = read_pickled("whole.pth")
        except pickle.UnpicklingError:
            continue
        assert isinstance(content, Inert)
        assert isinstance(vars(content)["extra"], Inert)
    assert not os.path.exists("executed")


def test_what_lies_beside_the_weights_does_not_matter():
    trained, model = Network(), Network()
    kept = {
        "state_dict": trained.state_dict(),
        "arguments": argparse.Namespace(arch="small"),
        "hook": Payload(print, "executed"),
    }
    torch.save(kept, "kept.pth")
    load_weights(model, "kept.pth")
    assert torch.equal(model.head.weight, trained.head.weight)
    assert not os.path.exists("executed")


def test_a_model_within_itself_is_no_model():
    model = Network()
    torch.save(model, "whole.pth")
    content = read_pickled("whole.pth")
    vars(content)["_modules"]["again"] = content
    assert weights_in(content) is None


def test_what_is_pickled_but_no_model_holds_no_weights():
    torch.save(Payload(dict), "other.pth")
    with pytest.raises(ArtifactError):
        load_weights(Network(), "other.pth")


def trained_with_its_optimizer():
    model = Network()
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.head(torch.rand(2, 4)).sum().backward()
    model.optimizer.step()
    return model


def test_an_optimizer_within_the_model_does_not_matter():
    trained, model = trained_with_its_optimizer(), Network()
    torch.save(trained, "whole.pth")
    load_weights(model, "whole.pth")
    assert torch.equal(model.head.weight, trained.head.weight)
    again = load_with_classes(
        lambda: torch.load("whole.pth", weights_only=True), "whole.pth", lambda module: module == __name__, lambda name: None
    )
    assert again.optimizer.param_groups[0]["lr"] == 0.1


def test_a_model_of_known_classes_is_loaded_as_one():
    trained = Network()
    torch.save(trained, "whole.pth")

    def load():
        return torch.load("whole.pth", weights_only=True)

    inert = []
    model = load_with_classes(load, "whole.pth", lambda module: module == __name__, inert.append)
    assert torch.equal(model.head.weight, trained.head.weight)
    assert model.activation is nn.functional.relu
    with pytest.raises(pickle.UnpicklingError):
        load_with_classes(load, "whole.pth", lambda module: False, inert.append)
    trained.extra = Payload()
    torch.save(trained, "whole.pth")
    with pytest.raises(pickle.UnpicklingError):
        load_with_classes(load, "whole.pth", lambda module: True, inert.append)
    assert inert == []


class Settings:
    def __init__(self):
        self.width = 4


def test_what_a_training_keeps_beside_its_weights_is_loaded_without_its_code():
    beside = {"args": argparse.Namespace(lr=0.1, out=pathlib.Path("runs")), "best": np.float64(0.5), "settings": Settings()}
    optimizer = functools.partial(torch.optim.SGD, lr=0.1)
    torch.save({"model": Network().state_dict(), "optimizer": optimizer, **beside}, "last.pth")
    inert = []

    def load():
        return torch.load("last.pth", weights_only=True)

    held = load_with_classes(load, "last.pth", lambda module: False, inert.append)
    assert held["model"].keys() == Network().state_dict().keys()
    assert (held["args"], held["best"]) == (beside["args"], 0.5)
    assert isinstance(held["settings"], Inert)
    assert held["settings"].width == 4
    assert sorted(inert) == ["functools.partial", f"{__name__}.Settings"]


@pytest.mark.parametrize("wrapped", [lambda model: {"model": model}, lambda model: {"model": nn.Sequential(model)}])
def test_a_model_of_an_unknown_class_is_not_loaded_as_data(wrapped):
    torch.save(wrapped(Network()), "last.pth")
    with pytest.raises(pickle.UnpicklingError):
        load_with_classes(
            lambda: torch.load("last.pth", weights_only=True), "last.pth", lambda module: False, lambda name: None
        )
