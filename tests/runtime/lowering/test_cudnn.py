"""That the operators are described to torch as what they compute, on the CPU by what the test says stands for cuDNN."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from headrace.runtime.lowering.cudnn import NAMES, OPERATORS, convolved

GEOMETRY = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 2}


def given(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=generator).to(dtype) for shape in ((3, 4, 7, 9), (6, 2, 3, 3), (6,)))
    return x.to(memory_format=torch.channels_last), weight, bias


def test_their_names_are_those_of_the_operators():
    assert [operator.name() for operator in OPERATORS] == [f"aten::{name}" for name in NAMES]


def test_the_relu_of_a_convolution_and_of_its_sum_with_another_value(cudnn_on_cpu):
    x, weight, bias = given()
    plain = torch.conv2d(x, weight, bias, *GEOMETRY.values())
    torch.testing.assert_close(convolved(x, weight, bias, **GEOMETRY)[0], plain.relu())
    other = torch.randn(plain.shape)
    torch.testing.assert_close(convolved(x, weight, bias, other, **GEOMETRY)[0], (plain + other).relu())
    torch.testing.assert_close(
        convolved(x, weight, None, **GEOMETRY)[0], torch.conv2d(x, weight, None, *GEOMETRY.values()).relu()
    )


@pytest.mark.parametrize("summed", [False, True])
def test_torch_knows_the_shape_of_what_they_give(summed):
    x, weight, bias = given(torch.bfloat16)
    wanted = torch.conv2d(x, weight, bias, *GEOMETRY.values())
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) for value in (x, weight, bias, *([wanted] if summed else []))]
        (found,) = convolved(*fakes, **GEOMETRY)
    assert (found.shape, found.dtype, found.stride()) == (wanted.shape, wanted.dtype, wanted.stride())


def test_on_a_cpu_they_say_that_they_do_not_run():
    x, weight, bias = given()
    with pytest.raises(NotImplementedError, match="cudnn_convolution_relu"):
        convolved(x, weight, bias, **GEOMETRY)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no usable CUDA device on this machine")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_on_a_gpu_they_compute_it(dtype):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, other = (
        torch.randn(shape, generator=generator).to("cuda", dtype)
        for shape in ((4, 64, 14, 14), (32, 64, 3, 3), (32,), (4, 32, 14, 14))
    )
    x, weight, other = (value.contiguous(memory_format=torch.channels_last) for value in (x, weight / 24, other))
    geometry = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    exact = torch.conv2d(x.double(), weight.double(), bias.double(), padding=1)
    bound = 2e-2 if dtype != torch.float32 else 5e-3  # TF32
    for residual, wanted in ((None, exact.relu()), (other, (exact + other.double()).relu())):
        (found,) = convolved(x, weight, bias, residual, **geometry)
        assert found.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(found.double(), wanted, rtol=bound, atol=bound)
