"""Attention on the CPU, split over rows and over heads."""

import pytest
import torch
from torch.nn import functional

from headrace import parallel
from tests.runtime.parallel import cases

sbp = parallel.sbp


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", [sbp.split(0), sbp.split(1), sbp.broadcast], ids=str)
def test_outputs_and_gradients_are_those_of_one_device(four, way, causal):
    plain = [cases.randn(4, 4, 5, 8).requires_grad_() for _ in range(3)]
    expected = functional.scaled_dot_product_attention(*plain, is_causal=causal)
    expected.square().sum().backward()
    mesh = parallel.world("cpu")
    values = [parallel.to_global(value.detach().requires_grad_(), mesh, way) for value in plain]
    given = functional.scaled_dot_product_attention(*values, is_causal=causal)
    assert given.placements == (way,)
    given.square().sum().backward()
    for one, other in zip(
        [expected, *(value.grad for value in plain)], [given, *(value.grad for value in values)], strict=True
    ):
        assert torch.allclose(parallel.whole(other).reconcile(), one.detach(), atol=1e-12, rtol=0)
