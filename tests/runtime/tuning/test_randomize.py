"""Weights drawn for parity checks."""

import torch
from torch import nn

from headrace.runtime.tuning.randomize import settled


class Branch(nn.Module):
    """A residual branch as initializers leave it: its last norm closed, its head zero."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Linear(3, 5)
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.head.weight)

    def forward(self, images):
        return self.head((images + self.norm(self.conv(images))).mean((2, 3)))


def test_closed_branches_are_opened_a_little_and_zero_heads_are_drawn():
    model = Branch()
    result = settled(model, [torch.randn(2, 3, 8, 8)])
    assert not model.norm.weight.any(), "the given model was changed"
    assert not model.head.weight.any()
    scale = result.norm.weight
    assert ((scale > 0.05) & (scale < 0.4)).all()
    assert result.head.weight.std() > 0.3
    assert torch.equal(result.conv.weight, model.conv.weight)
    assert result(torch.randn(4, 3, 8, 8)).std(0).max() > 0.01


def test_equal_seeds_give_equal_weights():
    model = Branch()
    one, two = (settled(model, [torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))], seed=3) for _ in range(2))
    assert all(
        torch.equal(left, right) for left, right in zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    )
