"""Bias and GELU against torch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from headrace.errors import KernelError
from headrace.kernels.bias_gelu import bias_gelu

NAN = float("nan")
# Half of the last place, and as much again since the interpreter cuts bfloat16 off where a GPU rounds.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def assert_right(x, bias, approximate):
    got = bias_gelu(x, bias, approximate)
    wanted = functional.gelu(x.double() + bias.double(), approximate=approximate)
    # Below zero 1 + erf is a difference of like numbers: off by about 2^-22, times half of x, in torch's formula too.
    torch.testing.assert_close(got.double(), wanted, rtol=TOLERANCE[x.dtype], atol=2e-6, equal_nan=True)
    assert got.dtype == x.dtype
    assert got.is_contiguous()


@settings(max_examples=12)
@given(st.lists(st.integers(0, 5), max_size=2), st.integers(0, 40), st.sampled_from(["none", "tanh"]))
def test_any_shape(batch, features, approximate):
    generator = torch.Generator().manual_seed(features)
    assert_right(
        torch.randn(*batch, features, generator=generator) * 3, torch.randn(features, generator=generator), approximate
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_dtypes_and_strides(dtype, approximate, generator, device):
    x = torch.randn(6, 5, 4, generator=generator).to(device, dtype)
    bias = torch.randn(8, generator=generator).to(device)
    assert_right(x, bias[:4].to(dtype), approximate)
    assert_right(x.transpose(0, 2), bias[:6], approximate)
    assert_right(x[..., ::2], bias[::4], approximate)
    assert_right(x[:1].expand(3, 5, 4), bias[1:5], approximate)


def test_more_than_one_tile_in_both_directions(generator, device):
    assert_right(
        torch.randn(3, 1030, generator=generator).to(device), torch.randn(1030, generator=generator).to(device), "tanh"
    )
    assert_right(torch.randn(301, 9, generator=generator).to(device), torch.randn(9, generator=generator).to(device), "tanh")


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_nan_and_huge_values_are_as_in_torch(approximate, device):
    x = torch.tensor([NAN, 1e30, -1e30, 0.0, -0.0, -50.0, 50.0, 1e38], device=device)
    got = bias_gelu(x, torch.zeros(8, device=device), approximate)
    torch.testing.assert_close(got, functional.gelu(x, approximate=approximate), rtol=1e-6, atol=0, equal_nan=True)


def test_what_does_not_fit_is_refused():
    with pytest.raises(KernelError, match=r"the bias has the shape \[2\], not \[3\]"):
        bias_gelu(torch.zeros(2, 3), torch.zeros(2), "none")
    with pytest.raises(KernelError, match="'none' or 'tanh', not 'erf'"):
        bias_gelu(torch.zeros(2, 3), torch.zeros(3), "erf")
