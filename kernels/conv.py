"""Convolution as an implicit matrix product, with bias, residual sum, ReLU and the step back to int8 in its epilogue.

`headrace::conv2d(x [n, c, h, w], weight [k, c, r, s], bias [k]?, residual?, stride, padding, dilation, relu)` takes float32,
bfloat16 or float16 of one dtype, sums in float32 (float32 products in full precision, not TF32), and rounds once; a last
argument, tile, says how the product is cut (kernels/_tiles.py) and changes the result by no more than the order of sums.
`headrace::conv2d_int8(x, weight, scale [k], bias [k]?, residual?, residual_scale, stride, padding, dilation, least, tile)`
takes int8 levels and sums in int32, or floats and no residual and sums in float32, and gives the int8 levels
clamp(round_half_even(scale * sum(x * weight) + bias + residual_scale * residual), least, 127). Everything else is the caller's,
ahead of time, because a division or a zero point for each element costs more than the product: scale, bias (both float32) and
residual_scale are divided by the scale of the result; zero points of x and residual are taken off the bias with the sums of the
weights, and that of the result is added to it; `least` is the zero point where a ReLU follows, else -128. Only around an image,
where x is level 0, is no zero point possible. A scale or bias that is NaN gives any level. Results are [n, k, oh, ow] in
channels last; x and weight are brought into channels last where they are not. One group. NaN and infinities go where the sums
of `torch.nn.functional.conv2d` carry them, and ReLU keeps NaN. float64 is computed by the reference. Raises KernelError on what
does not fit.

Rows of the product are output pixels, its columns output channels, and its depth is taps times input channels, gathered from x
as it is: nothing is unfolded in memory. Only what may lie outside is masked, and masked with 0, which Triton copies into shared
memory without a detour through registers: a product of 1x1 without padding reads the last row or channel once more instead.
Images of up to four channels are first written anew, four channels a pixel and with their padding, so that all taps of a row
lie side by side and are one step of the depth: 7x7 over three channels takes 7 steps of 32 where tap by tap it would take 49.
Roofline: 2 * n * oh * ow * k * c * r * s operations, and x, weight, residual and result each once. Source: NVIDIA CUTLASS,
"Implicit GEMM Convolution", with taps outermost (NHWC, analytic iterators).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import INTERPRETED, check, jit, launch, next_power_of_two, operator, size_of, tl, wide
from ._tiles import check_tile, fitting_tiles, turns_of, usual_tile

_MOST_PLACES = 1 << 31
_PITCH = 4  # channels of a pixel that is written anew: 8 bytes of bfloat16
_LEAST_RUN = 16  # of the depth, for tensor cores
_DEEPEST_RUN = 64
_LINE = 16  # pixels of which the width of an image is a multiple, so that Triton sees where its rows begin
_BLOCK = 1024


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
    stride: list[int], padding: list[int], dilation: list[int], least: int, tile: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """The same in plain torch: the sums in float64, where they are exact, and all after them in float32."""
    total = _convolved(x.double(), weight.double(), stride, padding, dilation)
    result = total.float() * scale.reshape(-1, 1, 1)
    result = result if bias is None else result + bias.reshape(-1, 1, 1)
    result = result if residual is None else result + residual.float() * residual_scale
    levels = torch.nan_to_num(result, nan=float(least)).clamp(least, 127).round().to(torch.int8)
    return levels.contiguous(memory_format=torch.channels_last)


def _convolved(x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    return torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation)


@jit
def _spread(
    x: tl.tensor, out: tl.tensor, count: tl.tensor, of_image: tl.tensor, of_channel: tl.tensor, of_row: tl.tensor,
    of_pixel: tl.tensor, height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, top: tl.constexpr,
    left: tl.constexpr, wide_height: tl.constexpr, wide_width: tl.constexpr, pitch: tl.constexpr, large: tl.constexpr,
    block: tl.constexpr,
) -> None:  # fmt: skip
    """Pixels of `pitch` channels, with what lies around the image and the channels that it lacks as 0."""
    start = tl.program_id(0)
    place = (start.to(tl.int64) if large else start) * block + tl.arange(0, block)
    channel, pixel = place % pitch, place // pitch
    z, y = pixel % wide_width - left, (pixel // wide_width) % wide_height - top
    image = pixel // (wide_width * wide_height)
    inside = (channel < channels) & (y >= 0) & (y < height) & (z >= 0) & (z < width) & (place < count)
    given = tl.load(x + image * of_image + channel * of_channel + y * of_row + z * of_pixel, mask=inside, other=0)
    tl.store(out + place, given, mask=place < count)


@jit
def _tile(
    x: tl.tensor, weight: tl.tensor, scale: tl.tensor, bias: tl.tensor, residual: tl.tensor, out: tl.tensor, rows: tl.tensor,
    outputs: tl.tensor, residual_scale: tl.tensor, height: tl.constexpr, width: tl.constexpr, out_height: tl.constexpr,
    out_width: tl.constexpr, stride_down: tl.constexpr, stride_across: tl.constexpr, padding_down: tl.constexpr,
    padding_across: tl.constexpr, dilation_down: tl.constexpr, dilation_across: tl.constexpr, channels: tl.constexpr,
    taps_down: tl.constexpr, taps_across: tl.constexpr, pitch: tl.constexpr, run: tl.constexpr, padded: tl.constexpr,
    flat: tl.constexpr, large: tl.constexpr, shifts: tl.constexpr, adds: tl.constexpr, relu: tl.constexpr,
    least: tl.constexpr, levels: tl.constexpr, in_float32: tl.constexpr, tile_rows: tl.constexpr, tile_outputs: tl.constexpr,
    depth: tl.constexpr,
) -> None:  # fmt: skip
    # With a `run` all taps of a row are one, `channels` are those of all its pixels, `run` numbers with what fills it up, and
    # the depth is so many rows as it has room for.
    together: tl.constexpr = depth // run if run > 0 and run < depth else 1
    taps: tl.constexpr = (taps_down + together - 1) // together if run > 0 else taps_down * taps_across
    across: tl.constexpr = 1 if run > 0 else taps_across
    steps: tl.constexpr = (channels + depth - 1) // depth
    whole: tl.constexpr = channels % depth == 0
    tiles = tl.cdiv(outputs, tile_outputs)
    row = tl.program_id(0) // tiles
    row = (row.to(tl.int64) if large else row) * tile_rows + tl.arange(0, tile_rows)
    output = (tl.program_id(0) % tiles) * tile_outputs + tl.arange(0, tile_outputs)
    lanes = tl.arange(0, depth)
    mask = (row < rows)[:, None] & (output < outputs)[None, :]
    beyond = row[:, None] * outputs + output[None, :]
    # Asked for before the product, so that it is there after it.
    more = tl.load(residual + beyond, mask=mask, other=0) if adds else 0
    # What lies behind the last row or output is read as the last, and never stored.
    near, column = tl.minimum(row, rows - 1), tl.minimum(output, outputs - 1)
    inside = tl.full([tile_rows], -1, tl.int32)
    top = tl.zeros([tile_rows], tl.int32)
    left = tl.zeros([tile_rows], tl.int32)
    if flat:
        first = near * pitch
    else:
        image = near // (out_height * out_width)
        place = (near % (out_height * out_width)).to(tl.int32)
        top = (place // out_width) * stride_down - padding_down
        left = (place % out_width) * stride_across - padding_across
        first = ((image * height + top) * width + left) * pitch
        if padded and taps <= 32:  # a bit for each tap: whether it lies in the image
            inside = tl.zeros([tile_rows], tl.int32)
            for one in tl.static_range(taps):
                down = top + (one // across) * dilation_down
                right = left + (one % across) * dilation_across
                bit = (down >= 0) & (down < height) & (right >= 0) & (right < width)
                inside |= bit.to(tl.int32) << one
    of_rows = (lanes // run * dilation_down * width * pitch + lanes % run) if together > 1 else lanes
    pixels = x + first[:, None] + of_rows[None, :]
    filters = weight + column[None, :] * (taps * (steps * depth if run > 0 else channels)) + lanes[:, None]
    integer: tl.constexpr = x.dtype.element_ty == tl.int8
    total = tl.zeros([tile_rows, tile_outputs], tl.int32 if integer else tl.float32)
    for step in range(taps * steps):
        tap = step // steps
        channel = (step % steps) * depth
        y = (tap // across) * (together * dilation_down)
        z = (tap % across) * dilation_across
        far = (y * width + z) * pitch + channel
        known = (channel + lanes) < channels
        if together > 1:
            known = (lanes % run < channels) & (tap * together + lanes // run < taps_down)
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
        if whole or run > 0:
            b = tl.load(filters + step * depth)
        else:
            b = tl.load(filters + (tap * channels + channel), mask=known[:, None], other=0)
        if integer:
            total = tl.dot(a, b, total, out_dtype=tl.int32)
        elif in_float32:
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
        else:
            total = tl.dot(a, b, total)
    sizes, shift = _of_outputs(scale, output, outputs, levels), _of_outputs(bias, output, outputs, shifts)
    result = _finished(total, sizes, shift, more, residual_scale, adds, relu, least, levels)
    tl.store(out + beyond, result.to(out.dtype.element_ty), mask=mask)


@jit
def _stream(
    x: tl.tensor, weight: tl.tensor, scale: tl.tensor, bias: tl.tensor, residual: tl.tensor, out: tl.tensor, rows: tl.tensor,
    outputs: tl.tensor, residual_scale: tl.tensor, turns: tl.tensor, channels: tl.constexpr, large: tl.constexpr,
    shifts: tl.constexpr, adds: tl.constexpr, relu: tl.constexpr, least: tl.constexpr, levels: tl.constexpr,
    in_float32: tl.constexpr, tile_rows: tl.constexpr, tile_outputs: tl.constexpr, depth: tl.constexpr, ahead: tl.constexpr,
    known_turns: tl.constexpr,
) -> None:  # fmt: skip
    """1x1 whose depth is one step: the weights stay, and `turns` tiles of rows pass by, each asked for `ahead` turns before."""
    tiles = tl.cdiv(outputs, tile_outputs)
    output = (tl.program_id(0) % tiles) * tile_outputs + tl.arange(0, tile_outputs)
    column = tl.minimum(output, outputs - 1)
    lanes = tl.arange(0, depth)
    filters = weight + column[None, :] * channels + lanes[:, None]
    b = tl.load(filters) if channels == depth else tl.load(filters, mask=(lanes < channels)[:, None], other=0)
    sizes, shift = _of_outputs(scale, output, outputs, levels), _of_outputs(bias, output, outputs, shifts)
    first = (tl.program_id(0) // tiles) * turns
    for turn in tl.range(0, known_turns if known_turns else turns, num_stages=ahead):
        row = first + turn
        row = (row.to(tl.int64) if large else row) * tile_rows + tl.arange(0, tile_rows)
        mask = (row < rows)[:, None] & (output < outputs)[None, :]
        beyond = row[:, None] * outputs + output[None, :]
        pixels = x + tl.minimum(row, rows - 1)[:, None] * channels + lanes[None, :]
        a = tl.load(pixels) if channels == depth else tl.load(pixels, mask=(lanes < channels)[None, :], other=0)
        more = tl.load(residual + beyond, mask=mask, other=0) if adds else 0
        if x.dtype.element_ty == tl.int8:
            total = tl.dot(a, b, out_dtype=tl.int32)
        elif in_float32:
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
        else:
            total = tl.dot(a, b)
        result = _finished(total, sizes, shift, more, residual_scale, adds, relu, least, levels)
        tl.store(out + beyond, result.to(out.dtype.element_ty), mask=mask)


@jit
def _of_outputs(values: tl.tensor, output: tl.tensor, outputs: tl.tensor, there: tl.constexpr) -> tl.tensor:
    """A number for each of the tile's output channels, as the row of a matrix; 0 where there are none."""
    found = tl.zeros_like(output).to(tl.float32)
    if there:
        found = tl.load(values + output, mask=output < outputs, other=0.0).to(tl.float32)
    return found[None, :]


@jit
def _finished(
    total: tl.tensor, scale: tl.tensor, bias: tl.tensor, more: tl.tensor, residual_scale: tl.tensor, adds: tl.constexpr,
    relu: tl.constexpr, least: tl.constexpr, levels: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The results of sums, in float32, or the levels in the last byte of an int32."""
    result = total.to(tl.float32)
    if levels:
        result *= scale
    result += bias
    if adds and levels:
        result = tl.fma(more.to(tl.float32), residual_scale, result)
    elif adds:
        result += more.to(tl.float32)
    if relu:
        result = tl.maximum(result, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if levels:
        result = tl.maximum(result, least)
        # Adding 1.5 * 2^23 leaves no bits for a fraction: it is rounded half to even, and the last byte is the level.
        result = (tl.minimum(result, 127.0) + 12582912.0).to(tl.int32, bitcast=True)
    return result


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
    known = x.dtype == torch.int8 or (x.is_floating_point() and residual is None)
    check(known, f"conv2d_int8 takes int8, or floats and no residual, not {x.dtype}")
    for item in (scale, *(() if bias is None else (bias,))):
        check(item.dtype == torch.float32, f"conv2d_int8 takes scale and bias as float32, not {item.dtype}")
    outputs = weight.shape[:1]
    check(-128 <= numbers[4] <= 127, f"the least level of int8 is not {numbers[4]}")
    check(scale.shape == outputs, f"conv2d_int8: there are {scale.numel()} scales and {weight.shape[0]} output channels")
    return _result(x, weight, bias, residual, numbers[1:4], *numbers[5:], dtype=torch.int8)


def _start_levels(
    out: Tensor, x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, residual: Tensor | None, *numbers: Any
) -> None:
    residual_scale, *geometry, least = numbers[:5]
    tile = numbers[5] if len(numbers) > 5 else None
    _launch(out, (x, weight, scale, bias, residual), geometry, residual_scale, False, tile, least=least)


def _result(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, geometry: Sequence[list[int]],
    tile: list[int] | None = None, *, dtype: torch.dtype | None = None,
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
    if tile is not None and len(tile) > 5:
        fits = _is_flat(weight.shape, stride, padding) and tile[2] >= x.shape[1]
        check(fits, "only 1x1 without padding and strides, in one step of the depth, takes turns")
    sides = [(x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    check(min(sides) > 0, f"nothing is left of {list(x.shape[2:])} pixels; pad more")
    shape = (x.shape[0], weight.shape[0], *sides)
    if residual is not None:
        check(tuple(residual.shape) == shape, f"the residual has the shape {list(residual.shape)}, the result {list(shape)}")
        check(residual.dtype == x.dtype, f"a convolution takes one dtype, not {x.dtype} and {residual.dtype}; convert one")
    return torch.empty(shape, dtype=dtype or x.dtype, device=x.device, memory_format=torch.channels_last)


def _launch(
    out: Tensor, tensors: Sequence[Tensor | None], geometry: Sequence[list[int]], residual_scale: float, relu: bool,
    tile: list[int] | None = None, *, least: int = 0,
) -> None:  # fmt: skip
    x, weight, scale, bias, residual = tensors
    assert x is not None, "a convolution reads something"
    assert weight is not None, "a convolution has a weight"
    n, k, out_height, out_width = out.shape
    (taps_down, taps_across), c = weight.shape[2:], x.shape[1]
    rows = n * out_height * out_width
    stride, padding, dilation = geometry
    narrow = _is_narrow(weight.shape, dilation) and x.is_floating_point()
    channels, pitch, run = (taps_across * _PITCH, _PITCH, _run_of(taps_across)) if narrow else (c, c, 0)
    tile_rows, tile_outputs, depth, warps, stages, *turns = tile or usual_tile(rows, k, channels, x.element_size())
    if narrow:
        reach = (dilation[0] * (taps_down - 1) + 1, taps_across)
        height, width = (
            (size - 1) * step + taps for size, step, taps in zip((out_height, out_width), stride, reach, strict=True)
        )
        pixels = _wide_pixels(x, height, -(-width // _LINE) * _LINE, padding)
        together = max(1, min(depth // run, next_power_of_two(taps_down))) if run <= _DEEPEST_RUN else 1
        depth = min(run, _DEEPEST_RUN) * together
        filters = _wide_pixels(weight, -(-taps_down // together) * together, run // _PITCH, [0, 0])
        (height, width), padding = pixels.shape[1:3], [0, 0]
    else:
        (height, width), pixels, filters = x.shape[2:], _flat(x), _flat(weight)
    others = (pixels if item is None else item.contiguous() for item in (scale, bias))
    given = (pixels, filters, *others, pixels if residual is None else _flat(residual), out)
    tiles, across = -(-rows // tile_rows), -(-k // tile_outputs)
    most = turns_of(turns[0], tiles * across) if turns else 1
    flags = {
        # Places of elements are 32 bits wide where that is enough: also behind the last row of a tile, and before the first.
        "large": max(pixels.numel(), (rows + most * tile_rows) * k) + weight[0].numel() * width >= _MOST_PLACES,
        "levels": scale is not None,
        "in_float32": INTERPRETED or x.dtype == torch.float32,  # the interpreter multiplies the bits of bfloat16
        "relu": relu,
        "least": float(least),
        "shifts": bias is not None,
        "adds": residual is not None,
    }
    sizes = {"tile_rows": tile_rows, "tile_outputs": tile_outputs, "depth": depth, "channels": channels}
    if turns:
        program, numbers = _stream, (most,)
        # Not compiled in, so that there is one program for all batches; the interpreter cannot count up to an argument.
        sizes |= {"ahead": stages, "known_turns": most if INTERPRETED else 0}
    else:
        program, numbers = _tile, (height, width, out_height, out_width, *stride, *padding, *dilation)
        flags |= {"padded": any(padding), "flat": _is_flat(weight.shape, stride, padding)}
        sizes |= {"run": run, "taps_down": taps_down, "taps_across": taps_across, "pitch": pitch}
    given = (*given, rows, k, residual_scale, *numbers)
    launch(program, -(-tiles // most) * across, out.device, *given, warps=warps, stages=stages, **flags, **sizes)


def tiles_for(
    rows: int, weight: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], element_bytes: int
) -> list[list[int]]:
    """The tiles worth measuring for a weight [k, c, r, s] and so many output pixels, the rule of thumb's first."""
    narrow = element_bytes > 1 and _is_narrow(weight, dilation)
    channels = weight[2] * _run_of(weight[3]) if narrow else weight[1]
    flat = _is_flat(weight, stride, padding)
    return fitting_tiles(rows, weight[0], channels, element_bytes, flat=flat, narrow=narrow)


def _is_flat(weight: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether rows of the product are the image's own pixels, one after another."""
    return (*weight[2:], *stride, *padding) == (1, 1, 1, 1, 0, 0)


def _is_narrow(weight: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether images have so few channels that they are written anew, if they are floats."""
    return weight[1] <= _PITCH and weight[3] > 1 and dilation[1] == 1


def _run_of(taps: int) -> int:
    """The numbers that the pixels under a row of taps take in the depth, with what fills them up."""
    channels = taps * _PITCH
    step = max(_LEAST_RUN, min(_DEEPEST_RUN, next_power_of_two(channels)))
    return -(-channels // step) * step


def _wide_pixels(x: Tensor, height: int, width: int, padding: Sequence[int]) -> Tensor:
    """[n, height, width, 4]: `_spread`, with as much before the image as the padding says."""
    n, c, *sides = x.shape
    pixels = torch.empty(n, height, width, _PITCH, dtype=x.dtype, device=x.device)
    large = max(pixels.numel() + _BLOCK, sum(abs(step) * size for step, size in zip(x.stride(), x.shape, strict=True)))
    sizes = {"height": sides[0], "width": sides[1], "channels": c, "top": padding[0], "left": padding[1]}
    sizes |= {"wide_height": height, "wide_width": width, "pitch": _PITCH, "large": large >= _MOST_PLACES, "block": _BLOCK}
    launch(_spread, -(-pixels.numel() // _BLOCK), x.device, x, pixels, pixels.numel(), *x.stride(), **sizes)
    return pixels


conv2d = operator("conv2d", conv2d_reference, _empty, _start)
conv2d_int8 = operator("conv2d_int8", conv2d_int8_reference, _empty_levels, _start_levels)


def _flat(value: Tensor) -> Tensor:
    """Elements one after another in channels last, whatever the strides of sides of length 1 say."""
    return value.permute(0, 2, 3, 1).contiguous()


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
    return x, weight, scale * 5e-3, bias * 50, residual, 0.5, [2, 1], [1, 1], [1, 2], -100


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
