"""Batch normalization over all ranks' rows; training steps of a network with it are in test_modules.py."""

import copy

import pytest
import torch
from torch import nn

from headrace import parallel
from tests.runtime.parallel import cases

sbp = parallel.sbp


@pytest.mark.parametrize("rows", [8, 6])
@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(3),
        nn.BatchNorm2d(3, momentum=None),
        nn.BatchNorm2d(3, affine=False),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.BatchNorm2d(3).eval(),
    ],
    ids=repr,
)
def test_it_is_that_of_one_device(four, norm, rows):
    own = copy.deepcopy(norm).double()
    images = cases.randn(rows, 3, 4, 4)
    expected = [own(images), own(2 * images)]
    mesh = parallel.world("cpu")
    module = parallel.to_global(copy.deepcopy(norm).double(), mesh)
    for value, factor in zip(expected, (1, 2), strict=True):
        given = module(parallel.to_global(factor * images, mesh, sbp.split(0)))
        assert given.placements == (sbp.split(0),)
        assert torch.allclose(parallel.whole(given).reconcile(), value.detach(), atol=1e-12, rtol=0)
    for name, buffer in own.named_buffers():
        assert torch.allclose(parallel.whole(dict(module.named_buffers())[name]).reconcile(), buffer, atol=1e-12, rtol=0), name


def test_plain_values_and_wrong_ones_are_the_modules_own_affair(alone):
    module = parallel.to_global(nn.BatchNorm2d(3, affine=False, track_running_stats=False), parallel.placement("cpu", [0]))
    assert type(module).__name__ == "BatchNorm2d"
    assert module(torch.randn(2, 3, 4, 4)).shape == (2, 3, 4, 4)
    with pytest.raises(ValueError, match="4D"):
        module(parallel.to_global(torch.randn(2, 3), parallel.placement("cpu", [0])))
