"""The classes that a checkpoint tells apart, told from the shapes of its weights."""

import pytest
import torch
from torch import nn

from headrace.migrate.worker.fine_tuned import classes_in


def build(classes=10, aux=True):
    parts = {"body": nn.Linear(10, 10), "head": nn.Linear(10, classes)}  # the body has as many outputs as there are classes
    return nn.ModuleDict(parts | ({"aux": nn.Linear(4, classes)} if aux else {}))


@pytest.mark.parametrize("classes", [10, 3, 1, 1000])
def test_the_layers_that_differ_tell(tmp_path, classes):
    torch.save({"state_dict": build(classes).state_dict()}, tmp_path / "net.pth")
    assert classes_in(build, tmp_path / "net.pth", 10) == classes


def test_another_network_tells_nothing(tmp_path):
    torch.save(nn.ModuleDict({"body": nn.Linear(7, 9), "head": nn.Linear(9, 4)}).state_dict(), tmp_path / "other.pth")
    (tmp_path / "broken.pth").write_bytes(b"no checkpoint")
    for name in ("other.pth", "broken.pth"):
        assert classes_in(build, tmp_path / name, 10) == 10
