"""Forms of older models that become graphs as they stand, so that no rule of the migrator rewrites them."""

import pytest
import torch
from torch import nn

from headrace.runtime.capture.capture import capture


class SwishFunction(torch.autograd.Function):
    """Saves memory in training: the backward pass computes the sigmoid again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        sigmoid = torch.sigmoid(x)
        return gradient * (sigmoid * (1 + x * (1 - sigmoid)))


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return SwishFunction.apply(x)


@torch.jit.script
def scripted_swish(x):
    return x.mul(torch.sigmoid(x))


class ScriptedSwish(nn.Module):
    def forward(self, x):
        return scripted_swish(x)


class DropConnect(nn.Module):
    """Scales in place, in training only."""

    def forward(self, x):
        if self.training:
            keep = torch.rand((x.shape[0], 1, 1, 1)).add_(0.8).floor_()
            x.div_(0.8)
            x.mul_(keep)
        return x


class Net(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.part = part
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.part(self.norm(self.conv(x))).mean((2, 3)))


@pytest.mark.parametrize("part", [MemoryEfficientSwish(), ScriptedSwish(), DropConnect()], ids=lambda part: type(part).__name__)
def test_becomes_a_graph_that_agrees(part):
    model = Net(part).eval()
    with torch.no_grad():
        model.norm.running_mean.normal_()
        model.norm.running_var.uniform_(0.5, 2)
    graph = capture(model, (torch.randn(2, 3, 8, 8),)).program.module()
    for batch in (1, 2, 5):
        rows = torch.randn(batch, 8, 8, 3).permute(0, 3, 1, 2)
        found = graph(rows)
        found = found[0] if isinstance(found, (list, tuple)) else found
        torch.testing.assert_close(found, model(rows), rtol=1e-6, atol=1e-6)
        wide = Net(part).eval().double()
        wide.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
        torch.testing.assert_close(found.double(), wide(rows.double()), rtol=1e-4, atol=1e-5)
