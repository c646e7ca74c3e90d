"""Modules over simulated ranks: forward pass, gradients and steps equal those of one process."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from headrace import parallel
from headrace.errors import InputError, PlacementError
from tests.runtime.parallel import cases

sbp = parallel.sbp


def one(value):
    """A simulated tensor, which must be the same on all ranks."""
    return value.reconcile() if hasattr(value, "reconcile") else value


def check(name, mesh_shape=None, **options):
    images, labels = cases.batch(name, 0)
    module = cases.model(name).train()
    expected = module(images)
    functional.cross_entropy(expected, labels).backward()
    gradients = {key: value.grad for key, value in module.named_parameters()}
    buffers = {key: value.clone() for key, value in module.named_buffers()}
    module = cases.model(name).train()
    mesh = parallel.world("cpu", mesh_shape)
    rows = cases.lay(name, module, mesh, **options)
    with parallel.guarded():
        outputs = module(parallel.to_global(images, mesh, rows))
        functional.cross_entropy(outputs, parallel.to_global(labels, mesh, rows)).backward()
    assert cases.furthest({"": expected.detach()}, {"": one(parallel.whole(outputs))}) < 1e-12
    for key, value in module.named_parameters():
        assert value.grad.placements == value.placements, key
    assert cases.furthest(gradients, {key: one(parallel.whole(v.grad)) for key, v in module.named_parameters()}) < 1e-9
    if buffers:
        assert cases.furthest(buffers, {key: one(parallel.whole(v)) for key, v in module.named_buffers()}) < 1e-12
    return module


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_data_parallel_and_zero_give_the_gradients_of_one_process(four, zero):
    module = check("mlp", zero=zero)
    split = any(not placement.is_replicate() for value in module.parameters() for placement in value.placements)
    assert split == (zero > 0)


@pytest.mark.parametrize("name", [pytest.param("cnn", marks=pytest.mark.slow), "vit"])  # its layers: test_batch_norm
def test_networks_with_batch_norm_and_attention(four, name):
    check(name)


@pytest.mark.parametrize(
    "name", ["cnn", *(pytest.param(one, marks=pytest.mark.slow) for one in ("mlp", "vit"))]
)  # vit: with ZeRO, below
def test_tensor_parallel_beside_data_parallel(four, name):
    check(name, (2, 2), tensor=True)


def test_everything_at_once(four):
    check("vit", (2, 2), tensor=True, zero=3)


class Odd(nn.Module):
    """Sizes that four ranks do not share out evenly, a weight that is used twice, and one that is frozen."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 7)
        self.third = nn.Linear(7, 7, bias=False)
        self.third.weight = self.second.weight
        self.frozen = nn.Linear(7, 3)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x):
        return self.frozen(self.third(torch.tanh(self.second(torch.tanh(self.first(x))))))


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_uneven_shared_and_frozen_parameters(four, zero):
    with cases.plainly():
        torch.manual_seed(0)
        plain = Odd().double()
    images = cases.randn(8, 5)
    expected = plain(images).square().sum()
    expected.backward()
    with cases.plainly():
        torch.manual_seed(0)
        module = Odd().double()
    mesh = parallel.world("cpu")
    parallel.to_global(module, mesh, zero=zero)
    assert module.third._parameters["weight"] is module.second._parameters["weight"]
    with parallel.guarded():
        loss = module(parallel.to_global(images, mesh, sbp.split(0))).square().sum()
        loss.backward()
    assert float((one(parallel.whole(loss)) - expected).abs().detach()) < 1e-10
    for name, value in plain.named_parameters():
        given = dict(module.named_parameters())[name].grad
        assert (given is None) == (value.grad is None), name
        if given is not None:
            assert torch.allclose(one(parallel.whole(given)), value.grad, atol=1e-12, rtol=0), name


def test_what_a_module_cannot_be_is_said(four):
    mesh = parallel.world("cpu", (2, 2))
    with pytest.raises(InputError, match="'head' drops out with p=0.5"):
        parallel.to_global(nn.ModuleDict({"head": nn.Dropout()}), mesh)
    with pytest.raises(InputError, match="'wieght', which is no parameter"):
        parallel.to_global(nn.Linear(2, 2), mesh, {"wieght": (sbp.split(0), sbp.broadcast)})
    for wrong, why in [({"zero": 4}, "stage of ZeRO"), ({"axis": "pipe"}, "none called 'pipe'"), ({"axis": 2}, "no axis 2")]:
        with pytest.raises(InputError, match=why):
            parallel.to_global(nn.Linear(2, 2), mesh, **wrong)
    module = parallel.to_global(nn.Linear(2, 2), mesh)
    with pytest.raises(InputError, match="global already"):
        parallel.to_global(module, mesh)


def test_a_use_that_is_no_conversion_is_an_error_in_the_backward_pass(four):
    """A parameter that is read past the module's own attribute has a gradient that nobody summed."""
    module = parallel.to_global(nn.Linear(4, 3), parallel.world("cpu"))
    rows = parallel.to_global(torch.ones(8, 4), parallel.world("cpu"), sbp.split(0))
    functional.linear(rows, module._parameters["weight"]).sum().backward()
    with pytest.raises(PlacementError, match=r"sbp\.partial_sum"):
        torch.optim.SGD(module.parameters(), lr=0.1).step()
