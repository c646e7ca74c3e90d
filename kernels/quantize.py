"""Floats to 256 levels and back, with one scale for the tensor or one for each channel.

`headrace::quantize(x, scale, zero_point?, axis, dtype) -> levels` and
`headrace::dequantize(levels, scale, zero_point?, axis, dtype) -> floats`. The scale is float32 of one element, or of as many as
the dimension `axis` has; the zero point is int32 of the same shape, or None for zero. Levels are int8 or uint8, floats are
float32, bfloat16 or float16. How a float becomes a level, and what NaN becomes, stands in kernels/_levels.py; a result lies in
memory as its argument does where that has no gaps. float64 is computed by the references. Raises KernelError on what does not
fit.

Roofline: each element read once and written once. The program takes a stretch of elements in the order of memory; the channel
of place p is (p / stride of the axis) mod channels, whatever the order of the dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, laid_out_as, launch, operator, size_of, tl, wide
from ._levels import from_levels, limits, to_levels, to_levels_reference

_BLOCK = 1024


def quantize_reference(x: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    """The same in plain torch, in float32, or float64 for float64."""
    scale, zero_point = _per_channel(scale, x, axis), None if zero_point is None else _per_channel(zero_point, x, axis)
    return to_levels_reference(wide(x), scale, 0 if zero_point is None else zero_point, dtype)


def dequantize_reference(levels: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    """The same in plain torch, in float32, or float64 for a float64 scale or result."""
    values = levels.double() if torch.float64 in (dtype, scale.dtype) else levels.float()
    values = values if zero_point is None else values - _per_channel(zero_point, levels, axis)
    return (values * _per_channel(scale, levels, axis)).to(dtype)


def _per_channel(value: Tensor, x: Tensor, axis: int) -> Tensor:
    """A view that broadcasts along `axis`."""
    shape = [1] * x.dim()
    if value.numel() != 1:
        shape[axis] = value.numel()
    return value.reshape(shape)


@jit
def _stretch(
    x: tl.tensor, scale: tl.tensor, zero_point: tl.tensor, out: tl.tensor, count: tl.tensor, channels: tl.tensor,
    channel_stride: tl.tensor, to: tl.constexpr, least: tl.constexpr, most: tl.constexpr, per_channel: tl.constexpr,
    shifts: tl.constexpr, narrow: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    number = tl.program_id(0)
    if not narrow:
        number = number.to(tl.int64)
    lanes = number * block + tl.arange(0, block)
    mask = lanes < count
    channel = tl.zeros([block], tl.int32)
    if per_channel:
        channel = ((lanes // channel_stride) % channels).to(tl.int32)
    factor = tl.load(scale + channel, mask=mask, other=1.0)
    shift = tl.zeros([block], tl.float32)
    if shifts:
        shift = tl.load(zero_point + channel, mask=mask, other=0).to(tl.float32)
    values = tl.load(x + lanes, mask=mask)
    result = to_levels(values.to(tl.float32), factor, shift, least, most) if to else from_levels(values, factor, shift)
    tl.store(out + lanes, result.to(out.dtype.element_ty), mask=mask)


def _empty_levels(x: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    check(x.is_floating_point(), f"quantize takes floats, not {x.dtype}")
    limits(dtype)
    _check(x, scale, zero_point, axis)
    return torch.empty_like(x, dtype=dtype)


def _empty_floats(levels: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    limits(levels.dtype)
    check(dtype.is_floating_point, f"dequantize gives floats, not {dtype}")
    _check(levels, scale, zero_point, axis)
    return torch.empty_like(levels, dtype=dtype)


def _check(x: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int) -> None:
    check(scale.dtype in (torch.float32, torch.float64), f"scales are float32, not {scale.dtype}")
    if scale.numel() != 1:
        check(-x.dim() <= axis < x.dim(), f"there is no dimension {axis} of {x.dim()}")
        check(scale.dim() == 1, f"scales are one number, or one for each channel, not {list(scale.shape)}")
        check(scale.shape[0] == x.shape[axis], f"{scale.shape[0]} scales are not one for each of {x.shape[axis]} channels")
    if zero_point is not None:
        check(zero_point.dtype == torch.int32, f"zero points are int32, not {zero_point.dtype}")
        check(zero_point.shape == scale.shape, f"zero points are shaped {list(zero_point.shape)}, scales {list(scale.shape)}")


def _start(out: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, dtype: torch.dtype) -> None:
    to = x.is_floating_point()
    levels = dtype if to else x.dtype
    least, most = limits(levels)
    count = out.numel()
    per_channel = scale.numel() != 1
    zero_points = scale if zero_point is None else zero_point.contiguous()
    channels, stride = (out.shape[axis], out.stride(axis)) if per_channel else (1, 1)
    arguments = (laid_out_as(x, out), scale.contiguous(), zero_points, out, count, channels, stride)
    given = {"to": to, "per_channel": per_channel, "shifts": zero_point is not None, "narrow": count + _BLOCK < 2**31}
    launch(_stretch, -(-count // _BLOCK), out.device, *arguments, **given, least=least, most=most, block=_BLOCK)


quantize = operator("quantize", quantize_reference, _empty_levels, _start)
dequantize = operator("dequantize", dequantize_reference, _empty_floats, _start)


def _example(device: str) -> tuple[Tensor, Tensor, Tensor, int, torch.dtype]:
    x = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    scale, zero_point = torch.tensor([0.02, 0.01, 0.03]), torch.tensor([0, 3, -7], dtype=torch.int32)
    return x.to(device, memory_format=torch.channels_last), scale.to(device), zero_point.to(device), 1, torch.int8


def _example_levels(device: str) -> tuple[Tensor, Tensor, Tensor, int, torch.dtype]:
    x, scale, zero_point, axis, dtype = _example(device)
    return quantize_reference(x, scale, zero_point, axis, dtype), scale, zero_point, axis, torch.float32


KERNEL = Kernel(
    name="quantize",
    operators={
        "quantize": Operator(
            run=quantize,
            reference=quantize_reference,
            example=_example,
            bytes_moved=lambda x, scale, zero_point, axis, dtype: size_of(x, scale, zero_point) + x.numel(),
        ),
        "dequantize": Operator(
            run=dequantize,
            reference=dequantize_reference,
            example=_example_levels,
            bytes_moved=lambda x, scale, zero_point, axis, dtype: size_of(x, scale, zero_point) + x.numel() * dtype.itemsize,
        ),
    },
)
