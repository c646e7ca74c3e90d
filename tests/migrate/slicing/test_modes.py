"""Which networks compute the same in training and in evaluation mode."""

import ast

import pytest

from headrace.migrate.slicing.modes import knows_no_mode
from headrace.migrate.survey.survey import project_index, survey

NET = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = {layer}
    def forward(self, x):
        return F.relu(self.conv(x)).view(len(x), -1)
class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.block = Block()
        self.head = nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=1))
    def forward(self, x):
        {line}
        return self.head(self.block(x))
def make():
    return Net()
"""


@pytest.mark.parametrize(
    ("layer", "line", "made", "plain"),
    [
        ("nn.Conv2d(3, 4, 3)", "pass", "Net()", True),
        ("nn.Conv2d(3, 4, 3)", "x = torch.flatten(x, 1)", "Net().to('cpu')", True),
        ("nn.Conv2d(3, 4, 3); nn.init.normal_(self.conv.weight)", "pass", "Net()", True),
        ("nn.Conv2d(3, 4, 3)", "pass", "nn.DataParallel(Net())", False),
        ("nn.Conv2d(3, 4, 3)", "pass", "make()", False),
        ("nn.Conv2d(3, 4, 3)", "pass", "torch.load('net.pt')", False),
        ("nn.Conv2d(3, 4, 3)", "x = F.dropout(x)", "Net()", False),
        ("nn.Conv2d(3, 4, 3)", "x = x + torch.randn_like(x)", "Net()", False),
        ("nn.Conv2d(3, 4, 3)", "x = x if self.training else x * 2", "Net()", False),
        ("nn.BatchNorm2d(3)", "pass", "Net()", False),
        ("nn.Dropout(0.5)", "pass", "Net()", False),
        ("torchvision.models.resnet18()", "pass", "Net()", False),
    ],
)
def test_a_network_of_layers_with_one_mode_knows_none(tmp_path, layer, line, made, plain):
    (tmp_path / "net.py").write_text(f"{NET.format(layer=layer, line=line)}net = {made}\n")
    module = project_index(survey(tmp_path)).repository.modules["net.py"]
    assert isinstance(assigned := module.tree.body[-1], ast.Assign)
    assert knows_no_mode(module, assigned.value) is plain
