"""A hook that looks on is no part of the model that is taken; one whose notes the model reads is."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.worker.live.hooks import without_observers
from headrace.migrate.worker.live.model import see_models, take_model
from headrace.runtime.graph.observers import observers

NET = """
import torch
from torch import nn

noted = {}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, images):
        features = self.conv(images)
        return self.head(FEATURES.mean((2, 3)))


model = Net().eval()
"""
HOOKS = {
    "as an array": "def look(layer, inputs, output):\n    noted['map'] = output.detach().cpu().numpy()\n",
    "with its gradient": "def look(layer, inputs, output):\n    output.register_hook(lambda grad: noted.update(grad=grad))\n",
    "by an object": "class Look:\n    def note(self, *given):\n        self.map = given[-1].tolist()\nlook = Look().note\n",
}
CHANGES = {
    "what it returns": "def look(layer, inputs, output):\n    return output * 2\n",
    "in place": "def look(layer, inputs, output):\n    with torch.no_grad():\n        output.mul_(2)\n",
}


def made(hook: str, features: str = "features") -> torch.nn.Module:
    names: dict[str, object] = {"__name__": "script"}
    text = NET.replace("FEATURES", features) + hook + "model.conv.register_forward_hook(look)\n"
    exec(compile(text, str(Path(__file__).with_name("script.py")), "exec"), names)
    return names["model"]  # type: ignore[return-value]


@pytest.mark.parametrize("kind", HOOKS)
def test_what_a_hook_notes_is_left_out(kind: str) -> None:
    model = made(HOOKS[kind])
    (place,) = without_observers(model, torch.rand(2, 3, 8, 8))
    assert place.startswith("script.py:")
    assert not list(observers(list(model.modules())))
    with torch.no_grad():
        assert model(torch.rand(1, 3, 8, 8)).shape == (1, 3)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_hook_that_changes_what_a_layer_gives_stays(kind: str) -> None:
    model = made(CHANGES[kind])
    assert without_observers(model, torch.rand(2, 3, 8, 8)) == []
    assert len(list(observers(list(model.modules())))) == 1


@pytest.mark.parametrize("features", ["noted['map']", "noted.pop('map')"])
def test_a_hook_whose_notes_the_model_reads_stays(features: str) -> None:
    model = made("def look(layer, inputs, output):\n    noted['map'] = output\n", features)
    assert without_observers(model, torch.rand(2, 3, 8, 8)) == []
    assert model(torch.rand(1, 3, 8, 8)).shape == (1, 3)


@pytest.mark.usefixtures("in_this_process")
def test_a_model_at_which_a_script_looks_is_taken_without_that_and_it_is_told(tmp_path: Path) -> None:
    calls = "for _ in range(2):\n    print(model(torch.rand(1, 3, 8, 8)).argmax(1).item())\n"
    text = NET.replace("FEATURES", "features") + HOOKS["as an array"] + "model.conv.register_forward_hook(look)\n" + calls
    (tmp_path / "cam.py").write_text(text)
    recipe = Recipe(root=str(tmp_path), script="cam.py")
    (seen,) = see_models(recipe).models
    notes: list[str] = []
    taken = take_model(replace(recipe, live=replace(seen.live, random=True)), notes)
    assert not list(observers(list(taken.modules())))
    line = 1 + text.splitlines().index("def look(layer, inputs, output):")
    assert notes == [f"what a hook notes of its layers is no output and not packaged (cam.py:{line})"]
