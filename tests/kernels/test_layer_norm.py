"""Layer norm, with and without the residual sum, against torch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from headrace.errors import KernelError
from headrace.kernels import layer_norm as module
from headrace.kernels.layer_norm import add_layer_norm, layer_norm

INF, NAN = float("inf"), float("nan")
# Half of the last place, and as much again since the interpreter cuts bfloat16 off where a GPU rounds.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def assert_right(x, weight, bias, residual=None, eps=1e-5):
    affine = [None if item is None else item.double() for item in (weight, bias)]
    if residual is None:
        got = layer_norm(x, weight, bias, eps)
        total = x
    else:
        got, total = add_layer_norm(x, residual, weight, bias, eps)
        torch.testing.assert_close(total.double(), x.double() + residual.double(), rtol=TOLERANCE[x.dtype], atol=1e-6)
        assert total.is_contiguous()
    wanted = functional.layer_norm(total.double(), x.shape[-1:], *affine, eps)
    torch.testing.assert_close(got.double(), wanted, rtol=TOLERANCE[x.dtype], atol=TOLERANCE[x.dtype], equal_nan=True)
    assert got.dtype == x.dtype
    assert got.is_contiguous()


@settings(max_examples=12)
@given(st.lists(st.integers(0, 3), max_size=2), st.integers(1, 70), st.booleans(), st.booleans(), st.booleans())
def test_any_shape(batch, features, has_weight, has_bias, has_residual):
    generator = torch.Generator().manual_seed(features)
    x, residual = torch.randn(2, *batch, features, generator=generator) * 3 + 1
    weight, bias = torch.randn(2, features, generator=generator)
    assert_right(x, weight if has_weight else None, bias if has_bias else None, residual if has_residual else None)


# Each is converted where it is read, whatever the strides.
@pytest.mark.parametrize(
    "dtype", [pytest.param(one, marks=[] if one == torch.bfloat16 else pytest.mark.slow) for one in TOLERANCE]
)
def test_dtypes_and_strides(dtype, generator, device):
    x, residual = torch.randn(2, 3, 5, 8, generator=generator).to(device, dtype)
    weight, bias = torch.randn(2, 5, generator=generator).to(device)
    assert_right(x.transpose(1, 2), weight, bias, residual.transpose(1, 2).contiguous())
    assert_right(x.transpose(1, 2)[:, ::2], weight.to(dtype), None)
    assert_right(x[..., 1:8:2], None, None, x[..., :1].expand(3, 5, 4))


def test_rows_longer_than_the_registers(monkeypatch, generator, device):
    monkeypatch.setattr(module, "_MOST_IN_REGISTERS", 16)
    for features in (17, 32, 45):
        x, residual = torch.randn(2, 3, features, generator=generator).to(device)
        weight, bias = torch.randn(2, features, generator=generator).to(device)
        assert_right(x, weight, bias, residual)


def test_a_mean_far_from_zero_costs_no_accuracy(generator, device):
    """Where the mean of squares minus the square of the mean would lose all digits."""
    x = torch.randn(2, 64, generator=generator) + 1000
    got = layer_norm(x.to(device), None, None, 1e-5)
    wanted = functional.layer_norm(x.double(), (64,), eps=1e-5)
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_spoils_its_row_alone(value, device):
    x = torch.arange(12.0).reshape(3, 4).to(device)
    x[1, 2] = value
    got = layer_norm(x, None, None, 1e-5)
    assert got.isnan().all(1).tolist() == [False, True, False]
    assert torch.equal(got.isnan(), functional.layer_norm(x, (4,)).isnan())


def test_a_row_of_one_value_is_the_bias(device):
    bias = torch.arange(5.0, device=device)
    assert torch.equal(layer_norm(torch.full((2, 5), 7.0, device=device), None, bias, 1e-5), bias.expand(2, 5))


def test_nothing_at_all(device):
    for shape in ((0, 5), (3, 0), (2, 0, 4)):
        x = torch.zeros(shape, device=device)
        assert layer_norm(x, None, None, 1e-5).shape == shape
        assert [item.shape for item in add_layer_norm(x, x, None, None, 1e-5)] == [shape, shape]


def test_what_does_not_fit_is_refused():
    x = torch.zeros(2, 3)
    with pytest.raises(KernelError, match=r"the weight has the shape \[2\], not \[3\]"):
        layer_norm(x, torch.zeros(2), None, 1e-5)
    with pytest.raises(KernelError, match="equal shapes"):
        add_layer_norm(x, x[:1], None, None, 1e-5)
    with pytest.raises(KernelError, match="one dtype"):
        add_layer_norm(x, x.half(), None, None, 1e-5)
