"""Residual sum and ReLU, and with the result quantized: what ends each block of a ResNet.

`headrace::add_relu(a, b) -> max(a + b, 0)` of float32, bfloat16 or float16 tensors of one shape and dtype, computed in float32
and rounded once. `headrace::add_relu_quantize(a, b, a_scale, a_zero_point, b_scale, b_zero_point, scale, zero_point, dtype)`
takes floats, with scales of 1 and zero points of 0, or levels (int8 or uint8), and gives levels of `dtype`, per tensor, as
kernels/_levels.py defines them, of the sum that is not rounded in between. Results lie in memory as `a` does where `a` has no
gaps (channels last stays so). NaN stays NaN, as in `torch.relu`; of levels it is the zero point. float64 is computed by the
references. Raises KernelError where shapes or dtypes differ.

Roofline: both read once, one written: 3 bytes per byte of `a`, or 2 and one byte per element. The program takes a stretch of
elements in the order of memory; a tensor that lies otherwise than the result is copied first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, laid_out_as, launch, operator, size_of, tl, wide
from ._levels import from_levels, limits, to_levels, to_levels_reference

_BLOCK = 1024


def add_relu_reference(a: Tensor, b: Tensor) -> Tensor:
    """The same in plain torch, in float32, or float64 for float64."""
    return torch.relu(wide(a) + wide(b)).to(a.dtype)


def add_relu_quantize_reference(
    a: Tensor, b: Tensor, a_scale: float, a_zero_point: int, b_scale: float, b_zero_point: int, scale: float, zero_point: int,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The same in plain torch, in float32, or float64 for float64."""
    total = (wide(a) - a_zero_point) * a_scale + (wide(b) - b_zero_point) * b_scale
    return to_levels_reference(torch.relu(total), scale, zero_point, dtype)


@jit
def _sums(a: tl.tensor, b: tl.tensor, out: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    lanes = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = lanes < count
    total = tl.load(a + lanes, mask=mask, other=0.0).to(tl.float32) + tl.load(b + lanes, mask=mask, other=0.0).to(tl.float32)
    total = tl.where(total < 0, 0.0, total)  # which NaN is not
    tl.store(out + lanes, total.to(out.dtype.element_ty), mask=mask)


@jit
def _levels(
    a: tl.tensor, b: tl.tensor, out: tl.tensor, count: tl.tensor, a_scale: tl.tensor, a_zero_point: tl.tensor,
    b_scale: tl.tensor, b_zero_point: tl.tensor, scale: tl.tensor, zero_point: tl.tensor, least: tl.constexpr,
    most: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    lanes = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = lanes < count
    total = from_levels(tl.load(a + lanes, mask=mask), a_scale, a_zero_point)
    total += from_levels(tl.load(b + lanes, mask=mask), b_scale, b_zero_point)
    total = tl.where(total < 0, 0.0, total)
    tl.store(out + lanes, to_levels(total, scale, zero_point, least, most).to(out.dtype.element_ty), mask=mask)


def _empty(a: Tensor, b: Tensor) -> Tensor:
    check(a.is_floating_point(), f"add_relu takes floats, not {a.dtype}; add_relu_quantize takes levels")
    _check(a, b)
    return torch.empty_like(a)


def _start(out: Tensor, a: Tensor, b: Tensor) -> None:
    arguments = (laid_out_as(a, out), laid_out_as(b, out), out, out.numel())
    launch(_sums, -(-out.numel() // _BLOCK), out.device, *arguments, block=_BLOCK)


def _empty_levels(a: Tensor, b: Tensor, *numbers: Any) -> Tensor:
    _check(a, b)
    limits(numbers[-1])
    return torch.empty_like(a, dtype=numbers[-1])


def _start_levels(out: Tensor, a: Tensor, b: Tensor, *numbers: Any) -> None:
    least, most = limits(out.dtype)
    arguments = (laid_out_as(a, out), laid_out_as(b, out), out, out.numel(), *map(float, numbers[:-1]))
    launch(_levels, -(-out.numel() // _BLOCK), out.device, *arguments, least=least, most=most, block=_BLOCK)


def _check(a: Tensor, b: Tensor) -> None:
    check(a.shape == b.shape, f"add_relu takes equal shapes, not {list(a.shape)} and {list(b.shape)}; expand one")
    check(a.dtype == b.dtype, f"add_relu takes one dtype, not {a.dtype} and {b.dtype}; convert one")


add_relu = operator("add_relu", add_relu_reference, _empty, _start)
add_relu_quantize = operator("add_relu_quantize", add_relu_quantize_reference, _empty_levels, _start_levels)


def _example(device: str) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, 2, 3, 5, 7, generator=torch.Generator().manual_seed(0)).to(device)
    return a.to(memory_format=torch.channels_last), b


def _example_levels(device: str) -> tuple[Tensor, Tensor, float, int, float, int, float, int, torch.dtype]:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randint(-128, 128, (2, 2, 3, 5, 7), generator=generator, dtype=torch.int8).to(device)
    return a, b, 0.02, 3, 0.013, -5, 0.017, -128, torch.int8


KERNEL = Kernel(
    name="add_relu",
    operators={
        "add_relu": Operator(
            run=add_relu, reference=add_relu_reference, example=_example, bytes_moved=lambda a, b: 3 * size_of(a)
        ),
        "add_relu_quantize": Operator(
            run=add_relu_quantize,
            reference=add_relu_quantize_reference,
            example=_example_levels,
            bytes_moved=lambda a, b, *numbers: 2 * size_of(a) + a.numel(),
        ),
    },
)
