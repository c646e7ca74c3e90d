"""Weights drawn for parity checks."""

import torch
from torch import nn

from headrace.runtime.tuning import randomize
from headrace.runtime.tuning.randomize import drawn, randomized, settled


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


class Attending(nn.Module):
    """Weighs channels by what is pooled of them, through a norm, as split attention does."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.first, self.pooled, self.second = nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.Conv2d(width, width, 1)

    def forward(self, x):
        features = self.norm(self.conv(x)).relu()
        weights = self.second(self.pooled(self.first(features.mean((2, 3), keepdim=True))).relu())
        return x + features * weights


def amplified(model, images):
    with torch.no_grad():
        given, other = model(images), model(images * (1 + 1e-6))
    return float((given - other).abs().max() / (given[0] - given[1]).abs().max())


def test_norms_behind_a_pooling_do_not_amplify_rounding(monkeypatch):
    torch.manual_seed(0)
    body = [Attending(16) for _ in range(8)]
    model = nn.Sequential(nn.Conv2d(3, 16, 3), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(16, 5)).eval()
    images = torch.rand(4, 3, 32, 32)
    assert max(amplified(settled(model, [images], seed=seed), images) for seed in range(3)) < 1e-2
    assert amplified(drawn(model, [images]), images) < 1e-2
    assert not amplified(randomized(model, [images]), images) < 1e-2
    monkeypatch.setattr(randomize, "_SHARES", (1.0,))
    assert not max(amplified(settled(model, [images], seed=seed), images) for seed in (2, 0, 1)) < 1e-2  # they overflow


def test_statistics_that_amplify_nothing_are_those_that_were_measured(monkeypatch):
    model = Branch().eval()
    images = [torch.randn(2, 3, 8, 8)]
    found = settled(model, images).norm
    monkeypatch.setattr(randomize, "_amplifies", lambda model, rows: False)
    assert torch.equal(settled(model, images).norm.running_var, found.running_var)
    monkeypatch.setattr(randomize, "_amplifies", lambda model, rows: True)
    plain = settled(model, images).norm
    assert not torch.equal(plain.running_var, found.running_var)
    assert plain.running_var.min() > 0.3


def test_all_weights_are_drawn_anew_where_that_amplifies_nothing():
    model, images = Branch().eval(), [torch.randn(2, 3, 8, 8)]
    found, wanted = drawn(model, images, seed=4), randomized(model, images, seed=4)
    assert all(map(torch.equal, found.state_dict().values(), wanted.state_dict().values()))
    assert not torch.equal(found.conv.weight, model.conv.weight)
