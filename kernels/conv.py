"""Convolution as an implicit matrix product, with bias, residual sum, ReLU and the step back to int8 in its epilogue.

`headrace::conv2d(x [n, c, h, w], weight [k, c, r, s], bias [k]?, residual?, stride, padding, dilation, relu)` takes float32,
bfloat16 or float16 of one dtype, sums in float32 (float32 products in full precision, not TF32), and rounds once; a last
argument, tile, says how the product is cut (kernels/_tiles.py) and changes the result by no more than the order of sums.
`headrace::conv2d_int8(x, weight, scale [k], x_zero_point, bias [k]?, residual?, residual_scale, residual_zero_point, stride,
padding, dilation, relu, out_scale, out_zero_point, sums [k]?, tile)` takes int8 levels, sums in int32, and gives int8 levels as
kernels/_levels.py defines them of scale * sum((x - x_zero_point) * weight) + bias (+ the residual, ReLU); `scale` is the
product of the scales of x and of each output channel's weights, which have no zero point; scale and bias are float32. `sums`
are the sums of each output channel's weights, int32, which every program else takes anew where x has a zero point. Results
are [n, k, oh, ow] in channels last; x and weight are brought into channels last where they are not. One group. NaN and
infinities go where the sums of `torch.nn.functional.conv2d` carry them, and ReLU keeps NaN. float64 is computed by the
reference. Raises KernelError on what does not fit.

Rows of the product are output pixels, its columns output channels, and its depth is taps times input channels, gathered from x
as it is: nothing is unfolded in memory. Roofline: 2 * n * oh * ow * k * c * r * s operations, and x, weight, residual and
result each once. Source: NVIDIA CUTLASS, "Implicit GEMM Convolution", with taps outermost (NHWC, analytic iterators).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import INTERPRETED, check, jit, launch, operator, size_of, tl, wide
from ._levels import from_levels, to_levels, to_levels_reference
from ._tiles import check_tile, usual_tile


def conv2d_reference(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, stride: list[int], padding: list[int],
    dilation: list[int], relu: bool, tile: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """The same in plain torch, in float32, or float64 for float64, where a tile makes no difference."""
    result = _convolved(wide(x), wide(weight), stride, padding, dilation)
    result = result if bias is None else result + wide(bias).reshape(-1, 1, 1)
    result = result if residual is None else result + wide(residual)
    return (torch.relu(result) if relu else result).to(x.dtype).contiguous(memory_format=torch.channels_last)


def conv2d_int8_reference(
    x: Tensor, weight: Tensor, scale: Tensor, x_zero_point: int, bias: Tensor | None, residual: Tensor | None,
    residual_scale: float, residual_zero_point: int, stride: list[int], padding: list[int], dilation: list[int], relu: bool,
    out_scale: float, out_zero_point: int, sums: Tensor | None = None, tile: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """The same in plain torch: the sums in float64, where they are exact, and all after them in float32."""
    total = _convolved(x.double() - x_zero_point, weight.double(), stride, padding, dilation)
    result = total.float() * scale.reshape(-1, 1, 1)
    result = result if bias is None else result + bias.reshape(-1, 1, 1)
    result = result if residual is None else result + (residual.float() - residual_zero_point) * residual_scale
    levels = to_levels_reference(torch.relu(result) if relu else result, out_scale, out_zero_point, torch.int8)
    return levels.contiguous(memory_format=torch.channels_last)


def _convolved(x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    return torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation)


@jit
def _tile(
    x: tl.tensor, weight: tl.tensor, scale: tl.tensor, weight_sums: tl.tensor, bias: tl.tensor, residual: tl.tensor,
    out: tl.tensor, rows: tl.tensor, height: tl.tensor, width: tl.tensor, out_height: tl.tensor, out_width: tl.tensor,
    outputs: tl.tensor, stride_down: tl.tensor, stride_across: tl.tensor, padding_down: tl.tensor, padding_across: tl.tensor,
    dilation_down: tl.tensor, dilation_across: tl.tensor, residual_scale: tl.tensor, residual_zero_point: tl.tensor,
    out_scale: tl.tensor, out_zero_point: tl.tensor, x_zero_point: tl.tensor, shifted: tl.constexpr, summed: tl.constexpr,
    channels: tl.constexpr, taps_down: tl.constexpr, taps_across: tl.constexpr, shifts: tl.constexpr, adds: tl.constexpr,
    relu: tl.constexpr, levels: tl.constexpr, in_float32: tl.constexpr, tile_rows: tl.constexpr, tile_outputs: tl.constexpr,
    depth: tl.constexpr,
) -> None:  # fmt: skip
    tiles = tl.cdiv(outputs, tile_outputs)
    row = (tl.program_id(0) // tiles).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    output = (tl.program_id(0) % tiles) * tile_outputs + tl.arange(0, tile_outputs)
    image = row // (out_height * out_width)
    place = (row % (out_height * out_width)).to(tl.int32)
    top = (place // out_width) * stride_down - padding_down
    left = (place % out_width) * stride_across - padding_across
    lanes = tl.arange(0, depth)
    steps: tl.constexpr = (channels + depth - 1) // depth
    if levels:
        total = tl.zeros([tile_rows, tile_outputs], tl.int32)
        sums = tl.zeros([tile_outputs], tl.int32)
    else:
        total = tl.zeros([tile_rows, tile_outputs], tl.float32)
    for step in range(taps_down * taps_across * steps):
        tap = step // steps
        channel = (step % steps) * depth + lanes
        y = top + (tap // taps_across) * dilation_down
        z = left + (tap % taps_across) * dilation_across
        inside = (row < rows) & (y >= 0) & (y < height) & (z >= 0) & (z < width)
        pixels = x + ((image * height + y) * width + z)[:, None] * channels + channel[None, :]
        # Around the image stands the level of 0.0.
        a = tl.load(pixels, mask=inside[:, None] & (channel < channels)[None, :], other=x_zero_point)
        filters = weight + (output.to(tl.int64) * (taps_down * taps_across) + tap)[None, :] * channels + channel[:, None]
        b = tl.load(filters, mask=(channel < channels)[:, None] & (output < outputs)[None, :], other=0)
        if levels:
            total = tl.dot(a, b, total, out_dtype=tl.int32)
            if shifted and not summed:
                sums += tl.sum(b.to(tl.int32), 0)
        elif in_float32:
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
        else:
            total = tl.dot(a, b, total)
    if levels:
        if shifted:
            if summed:
                sums = tl.load(weight_sums + output, mask=output < outputs, other=0)
            total -= x_zero_point * sums[None, :]
        result = total.to(tl.float32) * tl.load(scale + output, mask=output < outputs, other=0.0)[None, :]
    else:
        result = total
    if shifts:
        result += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    mask = (row < rows)[:, None] & (output < outputs)[None, :]
    far = row[:, None] * outputs + output[None, :]
    if adds:
        more = tl.load(residual + far, mask=mask, other=0)
        result += from_levels(more, residual_scale, residual_zero_point)
    if relu:
        result = tl.where(result < 0, 0.0, result)
    if levels:
        result = to_levels(result, out_scale, out_zero_point, -128, 127)
    tl.store(out + far, result.to(out.dtype.element_ty), mask=mask)


def _empty(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any) -> Tensor:
    check(x.is_floating_point(), f"conv2d takes floats, not {x.dtype}; conv2d_int8 takes levels")
    check(bias is None or bias.is_floating_point(), "conv2d takes a bias of floats")
    return _result(x, weight, bias, residual, numbers[:3], *numbers[4:])


def _start(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any) -> None:
    *geometry, relu = numbers[:4]
    _launch(out, (x, weight, None, None, bias, residual), geometry, (1.0, 0.0, 1.0, 0.0), 0, relu, *numbers[4:])


def _empty_levels(
    x: Tensor, weight: Tensor, scale: Tensor, x_zero_point: int, bias: Tensor | None, residual: Tensor | None, *numbers: Any
) -> Tensor:
    sums = numbers[8] if len(numbers) > 8 else None
    check(x.dtype == torch.int8, f"conv2d_int8 takes int8, not {x.dtype}")
    check(-128 <= x_zero_point <= 127, f"a zero point of int8 is not {x_zero_point}")
    for item in (scale, *(() if bias is None else (bias,))):
        check(item.dtype == torch.float32, f"conv2d_int8 takes scale and bias as float32, not {item.dtype}")
    check(sums is None or sums.dtype == torch.int32, "conv2d_int8 takes sums of weights as int32")
    outputs = weight.shape[:1]
    check(sums is None or sums.shape == outputs, f"the sums are not one number for each of {weight.shape[0]} outputs")
    check(scale.shape == outputs, f"conv2d_int8: there are {scale.numel()} scales and {weight.shape[0]} output channels")
    return _result(x, weight, bias, residual, numbers[2:5], *numbers[9:])


def _start_levels(
    out: Tensor, x: Tensor, weight: Tensor, scale: Tensor, x_zero_point: int, bias: Tensor | None, *rest: Any
) -> None:
    residual, residual_scale, residual_zero_point, *geometry, relu, out_scale, out_zero_point = rest[:9]
    floats = (residual_scale, float(residual_zero_point), out_scale, float(out_zero_point))
    sums = rest[9] if len(rest) > 9 else None
    _launch(out, (x, weight, scale, sums, bias, residual), geometry, floats, x_zero_point, relu, *rest[10:])


def _result(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, geometry: Sequence[list[int]],
    tile: list[int] | None = None,
) -> Tensor:  # fmt: skip
    if tile is not None:
        check_tile(tile)
    stride, padding, dilation = geometry
    check(x.dim() == 4 and weight.dim() == 4, "a convolution takes x as [n, c, h, w] and its weight as [k, c, r, s]")
    check(x.dtype == weight.dtype, f"a convolution takes one dtype, not {x.dtype} and {weight.dtype}; convert one")
    check(x.shape[1] == weight.shape[1], f"x has {x.shape[1]} channels, the weight {weight.shape[1]}; there is one group only")
    check(min(weight.shape) > 0, f"a weight of the shape {list(weight.shape)} has no elements")
    check(all(len(item) == 2 for item in geometry), "stride, padding and dilation are two numbers each, down and across")
    check(min(*stride, *dilation) > 0 and min(padding) >= 0, "strides and dilations are positive, and paddings not negative")
    check(bias is None or bias.shape == weight.shape[:1], f"the bias is not one number for each of {weight.shape[0]} outputs")
    sides = [(x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    check(min(sides) > 0, f"nothing is left of {list(x.shape[2:])} pixels; pad more")
    shape = (x.shape[0], weight.shape[0], *sides)
    if residual is not None:
        check(tuple(residual.shape) == shape, f"the residual has the shape {list(residual.shape)}, the result {list(shape)}")
        check(residual.dtype == x.dtype, f"a convolution takes one dtype, not {x.dtype} and {residual.dtype}; convert one")
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _launch(
    out: Tensor, tensors: Sequence[Tensor | None], geometry: Sequence[list[int]], floats: Sequence[float], x_zero_point: int,
    relu: bool, tile: list[int] | None = None,
) -> None:  # fmt: skip
    x, weight, scale, sums, bias, residual = tensors
    assert x is not None, "a convolution reads something"
    assert weight is not None, "a convolution has a weight"
    n, k, out_height, out_width = out.shape
    rows = n * out_height * out_width
    pixels = _flat(x)
    others = (pixels if item is None else item.contiguous() for item in (scale, sums, bias))
    given = (pixels, _flat(weight), *others, pixels if residual is None else _flat(residual), out)
    numbers = (rows, *x.shape[2:], out_height, out_width, k, *geometry[0], *geometry[1], *geometry[2], *floats, x_zero_point)
    height, width, depth, warps, stages = tile or usual_tile(rows, k, x.shape[1], x.element_size())
    # The interpreter multiplies the bits of bfloat16.
    flags = {"levels": scale is not None, "in_float32": INTERPRETED or x.dtype == torch.float32, "relu": relu}
    flags |= {
        "shifted": x_zero_point != 0,
        "summed": sums is not None,
        "shifts": bias is not None,
        "adds": residual is not None,
    }
    sizes = {"tile_rows": height, "tile_outputs": width, "depth": depth, **_shape(weight)}
    programs = -(-rows // height) * -(-k // width)
    launch(_tile, programs, out.device, *given, *numbers, warps=warps, stages=stages, **flags, **sizes)


conv2d = operator("conv2d", conv2d_reference, _empty, _start)
conv2d_int8 = operator("conv2d_int8", conv2d_int8_reference, _empty_levels, _start_levels)


def _flat(value: Tensor) -> Tensor:
    """Elements one after another in channels last, whatever the strides of sides of length 1 say."""
    return value.permute(0, 2, 3, 1).contiguous()


def _shape(weight: Tensor) -> dict[str, int]:
    return {"channels": weight.shape[1], "taps_down": weight.shape[2], "taps_across": weight.shape[3]}


def _example(device: str) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=generator).to(device) for shape in ((2, 3, 7, 6), (5, 3, 3, 2), (5,)))
    residual = torch.randn(2, 5, 4, 6, generator=generator).to(device)
    return x, weight, bias, residual, [2, 1], [1, 1], [1, 2], True


def _example_levels(device: str) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 7, 6), (5, 3, 3, 2), (2, 5, 4, 6))
    x, weight, residual = (torch.randint(-128, 128, item, generator=generator, dtype=torch.int8).to(device) for item in shapes)
    scale, bias = torch.rand(2, 5, generator=generator).to(device)
    return x, weight, scale * 1e-4, 3, bias, residual, 0.01, -4, [2, 1], [1, 1], [1, 2], True, 0.02, -128


KERNEL = Kernel(
    name="conv",
    operators={
        "conv2d": Operator(
            run=conv2d,
            reference=conv2d_reference,
            example=_example,
            bytes_moved=lambda x, weight, bias, residual, *rest: (
                size_of(x, weight, bias, residual) + size_of(_empty(x.to("meta"), weight.to("meta"), None, None, *rest))
            ),
        ),
        "conv2d_int8": Operator(
            run=conv2d_int8,
            reference=conv2d_int8_reference,
            example=_example_levels,
            bytes_moved=lambda x, weight, scale, x_zero_point, bias, residual, *rest: (
                size_of(x, weight, scale, bias, residual)
                + _result(x.to("meta"), weight.to("meta"), None, None, rest[2:5]).numel()
            ),
        ),
    },
)
