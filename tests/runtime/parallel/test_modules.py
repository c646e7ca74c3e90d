"""Modules over simulated ranks: forward pass, gradients and steps equal those of one process."""

import pytest
from torch.nn import functional

from headrace import parallel
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


@pytest.mark.parametrize("name", ["cnn", "vit"])
def test_networks_with_batch_norm_and_attention(four, name):
    check(name)


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit"])
def test_tensor_parallel_beside_data_parallel(four, name):
    check(name, (2, 2), tensor=True)


def test_everything_at_once(four):
    check("vit", (2, 2), tensor=True, zero=3)
