"""The largest of each window, against torch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from headrace.errors import KernelError
from headrace.kernels.max_pool import max_pool2d

NAN, INF = float("nan"), float("inf")


def assert_right(x, window, stride, padding, dilation):
    got = max_pool2d(x, window, stride, padding, dilation)
    wanted = functional.max_pool2d(x.double(), window, stride, padding, dilation)
    assert got.dtype == x.dtype
    assert got.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_window(data):
    def pair(least, most):
        return [data.draw(st.integers(least, most)) for _ in range(2)]

    window, stride, dilation = pair(1, 4), pair(1, 3), pair(1, 2)
    padding = [data.draw(st.integers(0, size // 2)) for size in window]
    sides = [step * (size - 1) + 1 + more for step, size, more in zip(dilation, window, pair(0, 6), strict=True)]
    generator = torch.Generator().manual_seed(sides[0])
    x = torch.randn(data.draw(st.integers(0, 3)), data.draw(st.integers(1, 70)), *sides, generator=generator)
    assert_right(x, window, stride, padding, dilation)


# float32 in any window is above, float16 as bfloat16
@pytest.mark.parametrize(
    "dtype",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in (torch.float32, torch.float16)), torch.bfloat16, torch.int8],
)
def test_dtypes_and_strides(dtype, generator, device):
    x = (40 * torch.randn(2, 64, 7, 10, generator=generator)).clamp(-128, 127).to(device, dtype)
    for images in (x, x.to(memory_format=torch.channels_last), x[:, ::3, 1:, ::2]):
        assert_right(images, [3, 3], [2, 2], [1, 1], [1, 1])


def test_what_is_not_finite_stays(device):
    x = torch.zeros(1, 1, 4, 6, device=device)
    x[0, 0, 0, 0], x[0, 0, 3, 5], x[0, 0, :, 2] = NAN, INF, -INF
    assert_right(x, [2, 2], [1, 1], [1, 1], [1, 1])
    assert_right(torch.full((1, 2, 3, 3), -INF, device=device), [3, 3], [1, 1], [1, 1], [1, 1])


def test_the_least_level_is_no_padding(device):
    assert_right(torch.full((1, 2, 3, 3), -128, dtype=torch.int8, device=device), [3, 3], [1, 1], [1, 1], [1, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([2, 2], [1, 1], [2, 0], [1, 1]), "more than half of a window"),
        (([5, 5], [1, 1], [0, 0], [1, 1]), "nothing is left"),
        (([2, 2], [0, 1], [0, 0], [1, 1]), "are positive"),
        (([2], [1, 1], [0, 0], [1, 1]), "two numbers each"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(KernelError, match=message):
        max_pool2d(torch.zeros(1, 2, 4, 4), *arguments)


def test_whole_numbers_are_refused():
    with pytest.raises(KernelError, match="floats or int8"):
        max_pool2d(torch.zeros(1, 2, 4, 4, dtype=torch.int32), [2, 2], [1, 1], [0, 0], [1, 1])
