"""A batch of one keeps its dimension, whatever the model squeezes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.errors import CaptureError
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.live.model import see_models, take_model
from headrace.migrate.worker.live.rows import keep_rows

NET = """
from collections import namedtuple

import torch
from torch import nn

Out = namedtuple("Out", "logits images")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, images):
        scores = self.head(self.conv(images).mean((2, 3), keepdim=True).squeeze())
        return RETURNED


model = Net().eval()
"""
FORMS = ["scores", "(scores, images)", "{'logits': scores, 'all': [scores * 2]}", "Out(scores, images)"]


def made(returned: str = "scores", **replaced: str) -> nn.Module:
    text = NET.replace("RETURNED", returned)
    for old, new in replaced.items():
        text = text.replace(old, new)
    names: dict[str, object] = {"__name__": "net"}
    exec(text, names)
    return names["model"]  # type: ignore[return-value]


def leaves(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("returned", FORMS)
def test_one_row_is_given_as_one_of_several(returned: str) -> None:
    model, images = made(returned), torch.rand(3, 3, 8, 8)
    before = model.state_dict().keys()
    with torch.no_grad():
        wanted = leaves(model(images))
        assert keep_rows(model, images)
        assert (type(model).__name__, model.state_dict().keys()) == ("Net", before)
        assert all(map(torch.equal, leaves(model(images)), wanted))
        for found, of_all in zip(leaves(model(images[:1])), wanted, strict=True):
            torch.testing.assert_close(found, of_all[:1], rtol=1e-5, atol=1e-6)
    assert not keep_rows(model, images)


@pytest.mark.parametrize("kind", [nn.Flatten, nn.Identity])
def test_a_model_that_keeps_them_is_left_as_it_is(kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 1, 1), kind())
    assert not keep_rows(model, torch.rand(2, 3, 4, 4))
    assert type(model) is nn.Sequential


def test_a_model_that_cannot_be_asked_is_left_to_what_says_why() -> None:
    model = nn.Linear(3, 2)
    assert not keep_rows(model, torch.rand(2, 5))
    assert type(model) is nn.Linear


@pytest.mark.parametrize("returned", [pytest.param("scores", marks=pytest.mark.slow), "scores.log_softmax(scores.dim() - 1)"])
def test_such_a_model_becomes_one_graph(returned: str) -> None:
    model, images = made(returned), torch.rand(3, 3, 8, 8)
    config = GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1, max_tuning_seconds=0.2)
    with pytest.raises(CaptureError):
        headrace.compile(model, images, config=config)
    assert keep_rows(model, images)
    graph = headrace.compile(model, images, config=config)
    for rows in (1, 2, 3):
        torch.testing.assert_close(graph(images[:rows]), model(images[:rows]).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("in_this_process")
def test_it_is_told_of_a_model_that_is_taken(tmp_path: Path) -> None:
    calls = "print(model(torch.rand(2, 3, 8, 8)).argmax(1))\nprint(model(torch.rand(4, 3, 8, 8)).argmax(1))\n"
    (tmp_path / "run.py").write_text(NET.replace("RETURNED", "scores") + calls)
    recipe = Recipe(root=str(tmp_path), script="run.py")
    (seen,) = see_models(recipe).models
    notes: list[str] = []
    taken = take_model(replace(recipe, live=replace(seen.live, random=True)), notes)
    assert taken(torch.rand(1, 3, 8, 8)).shape == (1, 3)
    assert notes == ["of one image alone it gives a row without the dimension of the batch; the package gives it as of several"]
