"""Levels of floats and floats of levels: equal to the formula in float32 to the bit, and to ONNX Runtime's operators."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import KernelError
from headrace.kernels.quantize import dequantize, dequantize_reference, quantize, quantize_reference

INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def assert_right(x, scale, zero_point, axis, dtype):
    levels = quantize(x, scale, zero_point, axis, dtype)
    assert torch.equal(levels, quantize_reference(x, scale, zero_point, axis, dtype))
    assert (levels.dtype, levels.stride()) == (dtype, torch.empty_like(x).stride())
    floats = dequantize(levels, scale, zero_point, axis, torch.float32)
    wanted = dequantize_reference(levels, scale, zero_point, axis, torch.float64)
    torch.testing.assert_close(floats.double(), wanted, rtol=1e-7, atol=0)
    assert floats.stride() == levels.stride()


def onnx_operator(name, x, scale, zero_point, axis):
    """One operator of opset 13 in ONNX Runtime."""
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(item.dtype) for item in (x, scale, zero_point)]
    result = kinds[2] if name == "QuantizeLinear" else kinds[1]
    values = [onnx.helper.make_tensor_value_info(key, kind, None) for key, kind in zip(("x", "s", "z"), kinds, strict=True)]
    node = onnx.helper.make_node(name, ["x", "s", "z"], ["y"], axis=axis)
    graph = onnx.helper.make_graph([node], "one", values, [onnx.helper.make_tensor_value_info("y", result, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x, "s": scale, "z": zero_point})[0]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.data())
def test_any_shape_and_axis(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator) * 2
    channels = data.draw(st.sampled_from([1, shape[axis]]))
    scale = torch.rand(channels, generator=generator) * 0.05 + 0.001
    zero_point = torch.randint(-20, 20, (channels,), generator=generator, dtype=torch.int32)
    assert_right(x, scale, data.draw(st.sampled_from([zero_point, None])), axis, torch.int8)


@pytest.mark.parametrize("levels", [torch.int8, torch.uint8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_strides(dtype, levels, generator, device):
    x = torch.randn(2, 6, 5, 7, generator=generator).to(device, dtype)
    scale = torch.linspace(0.01, 0.05, 6, device=device)
    zero_point = torch.arange(6, dtype=torch.int32, device=device)
    for value in (x, x.to(memory_format=torch.channels_last), x.transpose(2, 3)):
        assert_right(value, scale, zero_point, 1, levels)
        assert_right(value, scale[3:4], None, 0, levels)
    assert_right(x[:, ::2], scale[::2], zero_point[::2], 1, levels)
    assert_right(x[:, :1].expand(2, 6, 5, 7), scale, zero_point, -3, levels)


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_of_every_dtype_come_back(dtype, device):
    levels = torch.arange(-128, 128, dtype=torch.int8, device=device)
    floats = dequantize(levels, torch.tensor([0.5], device=device), None, 0, dtype)
    assert floats.dtype == dtype
    assert torch.equal(floats.float(), levels.float() / 2)


def test_more_than_one_block(generator, device):
    x = torch.randn(3, 1025, generator=generator).to(device)
    assert_right(x, torch.tensor([0.01, 0.02, 0.03], device=device), None, 0, torch.int8)


def test_half_goes_to_even_ends_are_ends_and_nan_is_zero(device):
    x = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 200.0, -200.0, INF, -INF, NAN], device=device)
    one = torch.ones(1, device=device)
    assert quantize(x, one, None, 0, torch.int8).tolist() == [-2, -2, 0, 0, 2, 2, 127, -128, 127, -128, 0]
    seven = torch.tensor([7], dtype=torch.int32, device=device)
    assert quantize(x, one, seven, 0, torch.uint8).tolist() == [5, 5, 7, 7, 9, 9, 207, 0, 255, 0, 7]


def test_levels_are_those_of_onnx_runtime(generator, device):
    x = torch.randn(4, 3, 50, generator=generator) * 3
    scale, zero_point = torch.tensor([0.017, 0.023, 0.031]), torch.tensor([3, 0, -5], dtype=torch.int32)
    got = quantize(x.to(device), scale.to(device), zero_point.to(device), 1, torch.int8).cpu()
    zeros = zero_point.to(torch.int8).numpy()
    wanted = onnx_operator("QuantizeLinear", x.numpy(), scale.numpy(), zeros, 1)
    np.testing.assert_array_equal(got.numpy(), wanted)
    floats = dequantize(got.to(device), scale.to(device), zero_point.to(device), 1, torch.float32).cpu()
    np.testing.assert_array_equal(floats.numpy(), onnx_operator("DequantizeLinear", wanted, scale.numpy(), zeros, 1))


def test_what_does_not_fit_is_refused():
    x, one = torch.zeros(2, 3), torch.ones(1)
    with pytest.raises(KernelError, match="2 scales are not one for each of 3 channels"):
        quantize(x, torch.ones(2), None, 1, torch.int8)
    with pytest.raises(KernelError, match="no dimension 2"):
        quantize(x, torch.ones(2), None, 2, torch.int8)
    with pytest.raises(KernelError, match="zero points are int32"):
        quantize(x, one, torch.zeros(1), 1, torch.int8)
    with pytest.raises(KernelError, match="int8 or uint8"):
        quantize(x, one, None, 1, torch.int32)
    with pytest.raises(KernelError, match="gives floats"):
        dequantize(x.to(torch.int8), one, None, 1, torch.int8)
