"""How a float becomes one of 256 levels, in programs and in references alike: ONNX's QuantizeLinear, version 13.

level = clamp(round_half_even(value / scale) + zero_point, least, most), divided, not multiplied by a reciprocal, so that both
agree to the bit. ONNX leaves NaN open; here it becomes the zero point, the level of 0.0. Infinities become the ends.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._launch import check, jit, tl


def limits(dtype: torch.dtype) -> tuple[int, int]:
    """The least and the most level of int8 or uint8; KernelError on other dtypes."""
    check(dtype in (torch.int8, torch.uint8), f"levels are int8 or uint8, not {dtype}")
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def to_levels_reference(values: Tensor, scale: Tensor | float, zero_point: Tensor | int, dtype: torch.dtype) -> Tensor:
    """Levels of float values; tensors of scales and zero points must broadcast to the values."""
    # A scale that is a Python number would be divided by as a product with its reciprocal on CUDA.
    divisor = scale if isinstance(scale, Tensor) else torch.tensor(scale, dtype=values.dtype, device=values.device)
    rounded = torch.nan_to_num(torch.round(values / divisor.to(values.dtype)), nan=0.0, posinf=1e9, neginf=-1e9)
    return (rounded + zero_point).clamp(*limits(dtype)).to(dtype)


@jit
def to_levels(values: tl.tensor, scale: tl.tensor, zero_point: tl.tensor, least: tl.constexpr, most: tl.constexpr) -> tl.tensor:
    """float32 levels, whole numbers from `least` to `most`, of float32 values, scales and zero points."""
    levels = tl.div_rn(values, scale)
    levels = tl.where(levels != levels, 0.0, levels)  # noqa: PLR0124 - NaN
    levels = tl.minimum(tl.maximum(levels, least - zero_point), most - zero_point)
    # Adding 1.5 * 2^23 leaves no bits for a fraction: it is rounded half to even, exactly, for all below 2^22.
    return (levels + 12582912.0) - 12582912.0 + zero_point


@jit
def from_levels(levels: tl.tensor, scale: tl.tensor, zero_point: tl.tensor) -> tl.tensor:
    """float32 values of levels."""
    return (levels.to(tl.float32) - zero_point) * scale
