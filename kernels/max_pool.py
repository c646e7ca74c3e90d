"""The largest value of each window of an image.

`headrace::max_pool2d(x [n, c, h, w], window, stride, padding, dilation)` takes float32, bfloat16, float16 or int8 and gives the
same dtype in channels last, as `torch.nn.functional.max_pool2d` with two numbers each and rounding down; NaN stays NaN, and x
is brought into channels last where it is not. Raises KernelError on what does not fit. Roofline: x and the result once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, launch, operator, size_of, tl

_BLOCK = 1024
_MOST_PLACES = 1 << 31


def max_pool2d_reference(x: Tensor, window: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    """The same in plain torch, which has it for floats alone: in float32, which holds levels and half precision exactly."""
    values = x if x.dtype == torch.float64 else x.float()
    result = torch.nn.functional.max_pool2d(values, window, stride, padding, dilation)
    return result.to(x.dtype).contiguous(memory_format=torch.channels_last)


@jit
def _windows(
    x: tl.tensor, out: tl.tensor, count: tl.tensor, height: tl.constexpr, width: tl.constexpr, out_height: tl.constexpr,
    out_width: tl.constexpr, channels: tl.constexpr, window_down: tl.constexpr, window_across: tl.constexpr,
    stride_down: tl.constexpr, stride_across: tl.constexpr, padding_down: tl.constexpr, padding_across: tl.constexpr,
    dilation_down: tl.constexpr, dilation_across: tl.constexpr, large: tl.constexpr, floats: tl.constexpr,
    block: tl.constexpr,
) -> None:  # fmt: skip
    start = tl.program_id(0)
    place = (start.to(tl.int64) if large else start) * block + tl.arange(0, block)
    channel, pixel = place % channels, place // channels
    left = (pixel % out_width) * stride_across - padding_across
    top = ((pixel // out_width) % out_height) * stride_down - padding_down
    image = pixel // (out_width * out_height)
    least = float("-inf") if floats else -128
    largest = tl.full([block], least, tl.float32)
    for tap in tl.static_range(window_down * window_across):
        y = top + (tap // window_across) * dilation_down
        z = left + (tap % window_across) * dilation_across
        inside = (y >= 0) & (y < height) & (z >= 0) & (z < width) & (place < count)
        given = tl.load(x + ((image * height + y) * width + z) * channels + channel, mask=inside, other=0).to(tl.float32)
        # Not what is loaded there: of four bytes that Triton 3.6 loads together only the first is another than 0 or -1.
        given = tl.where(inside, given, least)
        largest = tl.maximum(largest, given, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + place, largest.to(out.dtype.element_ty), mask=place < count)


def _empty(x: Tensor, window: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    check(x.is_floating_point() or x.dtype == torch.int8, f"max_pool2d takes floats or int8, not {x.dtype}")
    check(x.dim() == 4 and x.shape[1] > 0, "max_pool2d takes x as [n, c, h, w]")
    check(all(len(item) == 2 for item in (window, stride, padding, dilation)), "a window is two numbers each, down and across")
    check(min(*window, *stride, *dilation) > 0 and min(padding) >= 0, "windows, strides and dilations are positive")
    fits = all(2 * around <= size for around, size in zip(padding, window, strict=True))
    check(fits, f"a padding of {padding} is more than half of a window of {window}")
    reach = [step * (size - 1) + 1 for step, size in zip(dilation, window, strict=True)]
    sides = [(x.shape[2 + i] + 2 * padding[i] - reach[i]) // stride[i] + 1 for i in range(2)]
    check(min(sides) > 0, f"nothing is left of {list(x.shape[2:])} pixels; pad more")
    return torch.empty((*x.shape[:2], *sides), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _start(out: Tensor, x: Tensor, *geometry: list[int]) -> None:
    sizes = dict(zip(("height", "width"), x.shape[2:], strict=True)) | {"channels": x.shape[1]}
    sizes |= dict(zip(("out_height", "out_width"), out.shape[2:], strict=True))
    for name, pair in zip(("window", "stride", "padding", "dilation"), geometry, strict=True):
        sizes |= {f"{name}_down": pair[0], f"{name}_across": pair[1]}
    sizes |= {"large": max(x.numel(), out.numel()) + _BLOCK >= _MOST_PLACES, "floats": x.is_floating_point(), "block": _BLOCK}
    pixels = x.permute(0, 2, 3, 1).contiguous()
    launch(_windows, -(-out.numel() // _BLOCK), out.device, pixels, out, out.numel(), **sizes)


max_pool2d = operator("max_pool2d", max_pool2d_reference, _empty, _start)


def _example(device: str) -> tuple[Any, ...]:
    x = torch.randn(2, 5, 9, 8, generator=torch.Generator().manual_seed(0))
    return x.to(device), [3, 2], [2, 1], [1, 1], [1, 2]


KERNEL = Kernel(
    name="max_pool",
    operators={
        "max_pool2d": Operator(
            run=max_pool2d,
            reference=max_pool2d_reference,
            example=_example,
            bytes_moved=lambda x, *geometry: size_of(x) + size_of(_empty(x.to("meta"), *geometry)),
        )
    },
)
