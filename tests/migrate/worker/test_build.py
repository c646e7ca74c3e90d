"""Both kinds of recipes give the same model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from headrace.migrate.reading.recipe import LiveModel, Recipe
from headrace.migrate.worker.build import build_model
from headrace.migrate.worker.live import model as live_model
from headrace.migrate.worker.live.model import digests

SCRIPT = """
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 2))
for value in net.parameters():
    nn.init.constant_(value, 0.25)
if __name__ == "__main__":
    net.eval()
    with torch.no_grad():
        print(net(torch.rand(2, 3, 4, 4)).argmax(1))
"""


def test_taken_from_a_run_or_built_by_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_model, "ATTEMPTS", 1)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "look.py").write_text(SCRIPT)
    weights = tuple((name, "") for name in ("0.weight", "0.bias", "2.weight", "2.bias"))
    live = LiveModel(class_name="Sequential", ordinal=0, evaluating=True, row=(3, 4, 4), weights=weights, random=True)
    taken = build_model(Recipe(root=str(tmp_path), script="look.py", live=live))
    built = build_model(Recipe(root=str(tmp_path), script="look.py", source=SCRIPT, expression="net"))
    assert digests(taken.state_dict()) == digests(built.state_dict())
    images = torch.rand(3, 3, 4, 4)
    assert torch.equal(taken(images), built(images))


def test_a_package_that_is_run_as_a_module_is_built_beside_its_main_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies beside a script comes before what was loaded, except for the running process's own `__main__`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool").mkdir()
    for name in ("__init__", "__main__"):
        (tmp_path / "tool" / f"{name}.py").write_text(SCRIPT if name == "__main__" else "")
    main = sys.modules["__main__"]
    build_model(Recipe(root=str(tmp_path), script="tool/__main__.py", source=SCRIPT, expression="net"))
    assert sys.modules["__main__"] is main
