"""What a preview does without: numbers drawn, files written and gradients computed that nobody will see."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headrace.migrate.worker.live.shortcuts import shortcuts


def test_large_weights_repeat_themselves_within_their_bounds() -> None:
    torch.manual_seed(0)
    with shortcuts():
        layer = nn.Linear(700, 300)
        small = nn.Linear(7, 3)
    rows = layer.weight.detach().flatten()
    bound = 1 / 700**0.5
    assert torch.equal(rows[: 1 << 16], rows[1 << 16 : 2 << 16])
    assert torch.equal(rows[3 << 16 :], rows[: len(rows) - (3 << 16)])
    assert bound * 0.99 < rows.max() <= bound
    assert -bound <= rows.min() < -bound * 0.99
    assert len(small.weight.unique()) == 21
    assert len(nn.Linear(700, 300).weight.unique()) > 200_000  # as before, after it


def test_what_is_no_plain_memory_is_filled_as_ever() -> None:
    with shortcuts():
        across = torch.zeros(400, 300).T.normal_()
        with pytest.raises(RuntimeError, match="leaf"):
            torch.zeros(400, 300, requires_grad=True).normal_()
        assert torch.empty(400, 300, device="meta").normal_().is_meta
    assert len(across.unique()) > 100_000


def test_a_checkpoint_has_shapes_and_is_small(tmp_path) -> None:
    net = nn.Sequential(nn.Linear(400, 300), nn.BatchNorm1d(300))
    with shortcuts():
        torch.save({"net": net.state_dict(), "epoch": 3}, tmp_path / "net.pth")
        assert (tmp_path / "net.pth").stat().st_size < 20_000
    kept = torch.load(tmp_path / "net.pth")
    assert kept["epoch"] == 3
    assert torch.equal(kept["net"]["1.running_var"], torch.ones(300))
    net.load_state_dict(kept["net"])
    assert net[0].weight.shape == (300, 400)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    assert (tmp_path / "net.pth").stat().st_size > 480_000


def trained(net: nn.Module, loss=None) -> list[float]:
    images = torch.randn(4, 3, 8, 8)
    loss = (loss or (lambda out: out.square().mean()))(net(images))
    loss.backward()
    return [float(value.grad.abs().sum()) for value in net.parameters() if value.grad is not None]


def small_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


def test_gradients_are_zeros_for_what_would_have_some() -> None:
    net = small_net()
    net[0].bias.requires_grad = False
    with shortcuts():
        assert trained(net) == [0.0] * 5
        assert net[0].bias.grad is None
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9).step()
    net.zero_grad()
    assert sum(trained(net)) > 0


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("listener", ["hook of a layer", "hook of a tensor", "kept", "function"])
def test_gradients_are_real_where_the_script_s_code_sees_them(listener: str) -> None:
    heard = []
    with shortcuts():
        net = small_net()
        if listener == "hook of a layer":
            net[0].register_full_backward_hook(lambda *_: heard.append(1))
        if listener == "hook of a tensor":
            net[0].weight.register_hook(lambda grad: heard.append(1))
        if listener == "kept":
            out = net(torch.randn(4, 3, 8, 8))
            out.retain_grad()
            out.square().mean().backward()
            heard.append(float(out.grad.abs().sum()))
        if listener == "function":
            assert sum(trained(net, lambda out: Doubled.apply(out).square().mean())) > 0
            return
        if listener != "kept":
            assert sum(trained(net)) > 0
    assert heard
    assert heard[0] > 0


def test_backward_is_refused_as_ever() -> None:
    with shortcuts(), pytest.raises(RuntimeError, match="scalar"):
        small_net()(torch.randn(4, 3, 8, 8)).backward()
    with shortcuts(), pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(()).backward()
