"""Convolution as an implicit matrix product, with bias, residual sum, ReLU and the step back to int8 in its epilogue.

`headrace::conv2d(x [n, c, h, w], weight [k, c, r, s], bias [k]?, residual?, stride, padding, dilation, relu)` takes float32,
bfloat16 or float16 of one dtype, sums in float32 (float32 products in full precision, not TF32), and rounds once; a last
argument, tile, says how the product is cut (kernels/_tiles.py) and changes the result by no more than the order of sums.
`headrace::conv2d_int8(x, weight, scale [k], bias [k]?, residual?, residual_scale, stride, padding, dilation, relu, tile)` takes
int8 levels without zero points, as ONNX's QuantizeLinear has them with a zero point of 0, sums in int32, and gives the int8
levels clamp(round_half_even(scale * sum(x * weight) + bias + residual_scale * residual)), after ReLU those from 0 upward:
whoever calls has divided scale, bias (both float32) and residual_scale by the scale of the result, because a division for each
element costs more than the product. NaN becomes level 0. Results are [n, k, oh, ow] in channels last; x and weight are brought
into channels last where they are not. One group. NaN and infinities go where the sums of `torch.nn.functional.conv2d` carry
them, and ReLU keeps NaN. float64 is computed by the reference. Raises KernelError on what does not fit.

Rows of the product are output pixels, its columns output channels, and its depth is taps times input channels, gathered from x
as it is: nothing is unfolded in memory. Only what may lie outside is masked, and masked with 0, which Triton copies into shared
memory without a detour through registers: a product of 1x1 without padding reads the last row or channel once more instead.
Roofline: 2 * n * oh * ow * k * c * r * s operations, and x, weight, residual and result each once. Source: NVIDIA CUTLASS,
"Implicit GEMM Convolution", with taps outermost (NHWC, analytic iterators).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import INTERPRETED, check, jit, launch, operator, size_of, tl, wide
from ._tiles import check_tile, usual_tile

_MOST_PLACES = 1 << 31


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
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, residual: Tensor | None, residual_scale: float,
    stride: list[int], padding: list[int], dilation: list[int], relu: bool, tile: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """The same in plain torch: the sums in float64, where they are exact, and all after them in float32."""
    total = _convolved(x.double(), weight.double(), stride, padding, dilation)
    result = total.float() * scale.reshape(-1, 1, 1)
    result = result if bias is None else result + bias.reshape(-1, 1, 1)
    result = result if residual is None else result + residual.float() * residual_scale
    levels = torch.nan_to_num(result, nan=0.0).clamp(0 if relu else -128, 127).round().to(torch.int8)
    return levels.contiguous(memory_format=torch.channels_last)


def _convolved(x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    return torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation)


@jit
def _tile(
    x: tl.tensor, weight: tl.tensor, scale: tl.tensor, bias: tl.tensor, residual: tl.tensor, out: tl.tensor, rows: tl.tensor,
    height: tl.tensor, width: tl.tensor, out_height: tl.tensor, out_width: tl.tensor, outputs: tl.tensor,
    stride_down: tl.tensor, stride_across: tl.tensor, padding_down: tl.tensor, padding_across: tl.tensor,
    dilation_down: tl.tensor, dilation_across: tl.tensor, residual_scale: tl.tensor, channels: tl.constexpr,
    taps_down: tl.constexpr, taps_across: tl.constexpr, padded: tl.constexpr, flat: tl.constexpr, large: tl.constexpr,
    shifts: tl.constexpr, adds: tl.constexpr, relu: tl.constexpr, levels: tl.constexpr, in_float32: tl.constexpr,
    tile_rows: tl.constexpr, tile_outputs: tl.constexpr, depth: tl.constexpr,
) -> None:  # fmt: skip
    taps: tl.constexpr = taps_down * taps_across
    steps: tl.constexpr = (channels + depth - 1) // depth
    whole: tl.constexpr = channels % depth == 0
    tiles = tl.cdiv(outputs, tile_outputs)
    row = tl.program_id(0) // tiles
    row = (row.to(tl.int64) if large else row) * tile_rows + tl.arange(0, tile_rows)
    output = (tl.program_id(0) % tiles) * tile_outputs + tl.arange(0, tile_outputs)
    lanes = tl.arange(0, depth)
    # What lies behind the last row or output is read as the last, and never stored.
    near, column = tl.minimum(row, rows - 1), tl.minimum(output, outputs - 1)
    inside = tl.full([tile_rows], -1, tl.int32)
    top = tl.zeros([tile_rows], tl.int32)
    left = tl.zeros([tile_rows], tl.int32)
    if flat:
        first = near * channels
    else:
        image = near // (out_height * out_width)
        place = (near % (out_height * out_width)).to(tl.int32)
        top = (place // out_width) * stride_down - padding_down
        left = (place % out_width) * stride_across - padding_across
        first = ((image * height + top) * width + left) * channels
        if padded and taps <= 32:  # a bit for each tap: whether it lies in the image
            inside = tl.zeros([tile_rows], tl.int32)
            for place_of_tap in tl.static_range(taps):
                down = top + (place_of_tap // taps_across) * dilation_down
                across = left + (place_of_tap % taps_across) * dilation_across
                bit = (down >= 0) & (down < height) & (across >= 0) & (across < width)
                inside |= bit.to(tl.int32) << place_of_tap
    pixels = x + first[:, None] + lanes[None, :]
    filters = weight + column[None, :] * (taps * channels) + lanes[:, None]
    total = tl.zeros([tile_rows, tile_outputs], tl.int32 if levels else tl.float32)
    for step in range(taps * steps):
        tap = step // steps
        channel = (step % steps) * depth
        y = (tap // taps_across) * dilation_down
        z = (tap % taps_across) * dilation_across
        far = (y * width + z) * channels + channel
        known = (channel + lanes) < channels
        if padded:
            if taps <= 32:
                there = ((inside >> tap) & 1) != 0
            else:
                there = (top + y >= 0) & (top + y < height) & (left + z >= 0) & (left + z < width)
            a = tl.load(pixels + far, mask=there[:, None] if whole else there[:, None] & known[None, :], other=0)
        elif whole:
            a = tl.load(pixels + far)
        else:
            a = tl.load(pixels + far, mask=known[None, :], other=0)
        if whole:
            b = tl.load(filters + step * depth)
        else:
            b = tl.load(filters + (tap * channels + channel), mask=known[:, None], other=0)
        if levels:
            total = tl.dot(a, b, total, out_dtype=tl.int32)
        elif in_float32:
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
        else:
            total = tl.dot(a, b, total)
    result = total.to(tl.float32)
    if levels:
        result *= tl.load(scale + column)[None, :]
    if shifts:
        result += tl.load(bias + column).to(tl.float32)[None, :]
    mask = (row < rows)[:, None] & (output < outputs)[None, :]
    beyond = row[:, None] * outputs + output[None, :]
    if adds:
        more = tl.load(residual + beyond, mask=mask, other=0).to(tl.float32)
        result += more * residual_scale if levels else more
    if relu:
        result = tl.where(result < 0, 0.0, result)
    if levels:
        result = tl.where(result != result, 0.0, result)  # noqa: PLR0124 - NaN
        result = tl.minimum(tl.maximum(result, -128.0), 127.0)
        # Adding 1.5 * 2^23 leaves no bits for a fraction: it is rounded half to even, and the last byte is the level.
        result = (result + 12582912.0).to(tl.int32, bitcast=True)
    tl.store(out + beyond, result.to(out.dtype.element_ty), mask=mask)


def _empty(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any) -> Tensor:
    check(x.is_floating_point(), f"conv2d takes floats, not {x.dtype}; conv2d_int8 takes levels")
    check(bias is None or bias.is_floating_point(), "conv2d takes a bias of floats")
    return _result(x, weight, bias, residual, numbers[:3], *numbers[4:])


def _start(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any) -> None:
    *geometry, relu = numbers[:4]
    _launch(out, (x, weight, None, bias, residual), geometry, 1.0, relu, *numbers[4:])


def _empty_levels(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any
) -> Tensor:
    check(x.dtype == torch.int8, f"conv2d_int8 takes int8, not {x.dtype}")
    for item in (scale, *(() if bias is None else (bias,))):
        check(item.dtype == torch.float32, f"conv2d_int8 takes scale and bias as float32, not {item.dtype}")
    outputs = weight.shape[:1]
    check(scale.shape == outputs, f"conv2d_int8: there are {scale.numel()} scales and {weight.shape[0]} output channels")
    return _result(x, weight, bias, residual, numbers[1:4], *numbers[5:])


def _start_levels(
    out: Tensor, x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any
) -> None:
    residual_scale, *geometry, relu = numbers[:5]
    _launch(out, (x, weight, scale, bias, residual), geometry, residual_scale, relu, *numbers[5:])


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
    out: Tensor, tensors: Sequence[Tensor | None], geometry: Sequence[list[int]], residual_scale: float, relu: bool,
    tile: list[int] | None = None,
) -> None:  # fmt: skip
    x, weight, scale, bias, residual = tensors
    assert x is not None, "a convolution reads something"
    assert weight is not None, "a convolution has a weight"
    n, k, out_height, out_width = out.shape
    rows = n * out_height * out_width
    pixels = _flat(x)
    others = (pixels if item is None else item.contiguous() for item in (scale, bias))
    given = (pixels, _flat(weight), *others, pixels if residual is None else _flat(residual), out)
    numbers = (rows, *x.shape[2:], out_height, out_width, k, *geometry[0], *geometry[1], *geometry[2], residual_scale)
    height, width, depth, warps, stages = tile or usual_tile(rows, k, x.shape[1], x.element_size())
    padded = any(geometry[1])
    flags = {
        "padded": padded,
        "flat": not padded and weight.shape[2:] == (1, 1) and list(geometry[0]) == [1, 1],
        # Places of elements are 32 bits wide where that is enough: also behind the last row of a tile, and before the first.
        "large": max(x.numel(), (rows + height) * k) + weight[0].numel() * x.shape[3] >= _MOST_PLACES,
        "levels": scale is not None,
        "in_float32": INTERPRETED or x.dtype == torch.float32,  # the interpreter multiplies the bits of bfloat16
        "relu": relu,
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
    return x, weight, scale * 5e-3, bias * 50, residual, 0.5, [2, 1], [1, 1], [1, 2], True


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
            bytes_moved=lambda x, weight, scale, bias, residual, *rest: (
                size_of(x, weight, scale, bias, residual)
                + _result(x.to("meta"), weight.to("meta"), None, None, rest[1:4]).numel()
            ),
        ),
    },
)
