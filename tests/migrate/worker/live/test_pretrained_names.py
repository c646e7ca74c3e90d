"""Names of classes that a library's weights have, and that a script does not state."""

import json
import types

import pytest
import torch
from torch import nn

from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.live.model import see_models
from headrace.migrate.worker.live.pretrained_names import names_of, note

BUILDER = """
import sys
def build(weights, state, note):
    net = nn.Sequential(nn.Linear(4, 3))
    net.load_state_dict(state)
    note(net, sys._getframe())
    return net
"""
WEIGHTS = types.SimpleNamespace(meta={"categories": ["ant", "bee", "cat"]})


def built(weights=WEIGHTS, file="/env/site-packages/torchvision/models/net.py"):
    scope = {"nn": nn}
    exec(compile(BUILDER, file, "exec"), scope)
    return scope["build"](weights, nn.Sequential(nn.Linear(4, 3)).state_dict(), note)


def test_the_classes_of_a_librarys_weights_are_those_of_its_model():
    net = built()
    assert names_of(net, 3) == ("ant", "bee", "cat")
    assert names_of(net, 4) is None
    assert names_of(nn.Sequential(net), 3) is None
    assert names_of(built(weights=None), 3) is None
    assert names_of(built(file="/home/me/models/net.py"), 3) is None


def test_another_head_or_other_weights_have_classes_that_nobody_knows():
    net = built()
    net[0] = nn.Linear(4, 3)
    assert names_of(net, 3) is None
    net = built()
    whole = nn.Sequential(net)
    whole.load_state_dict(whole.state_dict())
    note(whole, None)
    assert names_of(net, 3) is None


SCRIPT = """
import torch
from torchvision import models
net = models.resnet18(weights="IMAGENET1K_V1").eval()
{more}
with torch.no_grad():
    print(net(torch.rand(2, 3, 64, 64)).argmax(1))
"""


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("more", "named"),
    [("", True), ("net.fc = torch.nn.Linear(512, 1000)", False), ("net.load_state_dict(torch.load('own.pth'))", False)],
)
def test_a_model_of_torchvision_as_it_comes_has_the_names_of_its_weights(tmp_path, monkeypatch, more, named):
    models = pytest.importorskip("torchvision.models")
    root = tmp_path / "repository"
    root.mkdir()
    (root / "main.py").write_text(SCRIPT.format(more=more))
    torch.save(models.resnet18().state_dict(), root / "own.pth")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    seen = see_models(Recipe(root=str(root), script="main.py", expression=""))
    names = seen.models[0].labels[0]
    assert (names is not None and names[:2] == ("tench", "goldfish")) is named, json.dumps(names)
