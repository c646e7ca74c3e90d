"""Residual sum and ReLU, in floats and in levels, against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import KernelError
from headrace.kernels import _launch
from headrace.kernels import add_relu as kernel_file
from headrace.kernels.add_relu import add_relu, add_relu_quantize

INF, NAN = float("inf"), float("nan")
# Half of the last place, and as much again since the interpreter cuts bfloat16 off where a GPU rounds.
TOLERANCE = {torch.float32: 1e-7, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def assert_right(a, b):
    got = add_relu(a, b)
    wanted = torch.relu(a.double() + b.double())
    torch.testing.assert_close(got.double(), wanted, rtol=TOLERANCE[a.dtype], atol=1e-7, equal_nan=True)
    assert (got.dtype, got.stride()) == (a.dtype, torch.empty_like(a).stride())


def assert_levels_right(a, b, numbers, dtype):
    """Equal to the exact level, or to the next one where the exact value is as good as half way between."""
    a_scale, a_zero, b_scale, b_zero, scale, zero = numbers
    got = add_relu_quantize(a, b, *numbers, dtype)
    exact = torch.relu((a.double() - a_zero) * a_scale + (b.double() - b_zero) * b_scale) / scale
    limits = torch.iinfo(dtype)
    wanted = (torch.nan_to_num(exact, nan=0.0).round() + zero).clamp(limits.min, limits.max)
    wrong = (got.double() - wanted).abs()
    half_way = ((exact - exact.floor()) - 0.5).abs() < 1e-4
    assert got.dtype == dtype
    assert bool(((wrong == 0) | ((wrong == 1) & half_way)).all())


@settings(max_examples=12)
@given(st.lists(st.integers(0, 9), max_size=4))
def test_any_shape(shape):
    a, b = torch.randn(2, *shape, generator=torch.Generator().manual_seed(len(shape)))
    assert_right(a, b)


def test_more_than_one_block(generator, device):
    assert_right(*torch.randn(2, 2049, generator=generator).to(device))


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_dtypes_and_strides(dtype, generator, device):
    a, b = torch.randn(2, 2, 6, 5, 7, generator=generator).to(device, dtype)
    last = {"memory_format": torch.channels_last}
    assert_right(a, b)
    assert_right(a.to(**last), b.to(**last))
    assert_right(a.to(**last), b)
    assert_right(a[:, ::2], b[:, 1::2])  # gaps
    assert_right(a[:, :1].expand(2, 6, 5, 7), b.transpose(2, 3).contiguous().transpose(2, 3))


def test_what_is_not_finite_is_as_in_torch(device):
    a = torch.tensor([NAN, 1, INF, -INF, INF, -0.0, 3e38, -3e38], device=device)
    b = torch.tensor([1, NAN, 1, 1, -INF, 0.0, 3e38, -3e38], device=device)
    torch.testing.assert_close(add_relu(a, b), torch.relu(a + b), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_levels_to_levels(dtype, generator, device):
    limits = torch.iinfo(dtype)
    a, b = torch.randint(limits.min, limits.max + 1, (2, 3, 5, 9, 9), generator=generator, dtype=dtype).to(device)
    middle = (limits.min + limits.max + 1) // 2
    assert_levels_right(a, b, (0.031, middle, 0.017, middle + 3, 0.023, limits.min), dtype)
    assert_levels_right(a.to(memory_format=torch.channels_last), b, (0.5, middle, 0.25, middle, 0.125, 0), dtype)


def test_floats_to_levels_round_half_to_even_and_end_at_the_ends(device):
    a = torch.tensor([0.5, 1.5, 2.5, -3.0, 126.5, 127.5, 1000.0, INF, NAN], device=device)
    got = add_relu_quantize(a, torch.zeros_like(a), 1.0, 0, 1.0, 0, 1.0, 0, torch.int8)
    assert got.tolist() == [0, 2, 2, 0, 126, 127, 127, 127, 0]
    got = add_relu_quantize(a, torch.zeros_like(a), 1.0, 0, 1.0, 0, 1.0, -128, torch.int8)
    assert got.tolist() == [-128, -126, -126, -128, -2, 0, 127, 127, -128]


def test_nothing_at_all(device):
    for shape in ((0,), (2, 0, 3)):
        a = torch.zeros(shape, device=device)
        assert add_relu(a, a).shape == shape
        assert add_relu_quantize(a, a, 1.0, 0, 1.0, 0, 1.0, 0, torch.int8).shape == shape


def test_what_does_not_fit_is_refused():
    a = torch.zeros(2, 3)
    with pytest.raises(KernelError, match="equal shapes"):
        add_relu(a, a[:, :1])
    with pytest.raises(KernelError, match="one dtype"):
        add_relu(a, a.half())
    with pytest.raises(KernelError, match="add_relu_quantize takes levels"):
        add_relu(a.to(torch.int8), a.to(torch.int8))
    with pytest.raises(KernelError, match=r"int8 or uint8, not torch\.int16"):
        add_relu_quantize(a, a, 1.0, 0, 1.0, 0, 1.0, 0, torch.int16)


@pytest.mark.skipif(not _launch.INTERPRETED, reason="the interpreter runs in a process of its own: test_interpreted.py")
def test_the_interpreter_runs_the_program_and_not_the_reference(monkeypatch):
    assert type(kernel_file._sums).__name__ == "InterpretedFunction"
    monkeypatch.setattr(kernel_file, "_sums", None)
    with pytest.raises(TypeError):
        add_relu(torch.ones(3), torch.ones(3))
