"""Bias and GELU in one pass: what stands between the two layers of a transformer's MLP.

`headrace::bias_gelu(x [..., features], bias [features], approximate) -> gelu(x + bias)`, with `approximate` "none" (by the
error function) or "tanh" as in `torch.nn.functional.gelu`. x is float32, bfloat16 or float16 with any strides, the bias any of
these; the result has x's dtype, is contiguous, and is computed in float32 and rounded once. NaN stays NaN, and -inf gives NaN,
being -inf * 0; of inf torch itself gives inf or NaN by the length of the tensor, and the program gives inf. float64 is computed
by the reference. Raises KernelError on shapes that do not fit.

Roofline: x read once, the result written once. The program takes a tile of rows and features.
D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units" (2016). tanh u is written as 2 / (1 + exp(-2u)) - 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, launch, next_power_of_two, operator, size_of, tl, wide

_TILE = 2048  # elements
_MOST_COLUMNS = 1024


def bias_gelu_reference(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    """The same in plain torch, in float32, or float64 for float64."""
    return torch.nn.functional.gelu(wide(x) + bias.to(wide(x).dtype), approximate=approximate).to(x.dtype).contiguous()


@jit
def _tile(
    x: tl.tensor, bias: tl.tensor, out: tl.tensor, rows: tl.tensor, features: tl.tensor, row_stride: tl.tensor,
    feature_stride: tl.tensor, tanh: tl.constexpr, tall: tl.constexpr, across: tl.constexpr,
) -> None:  # fmt: skip
    tiles = tl.cdiv(features, across)
    columns = (tl.program_id(0) % tiles) * across + tl.arange(0, across)
    lines = (tl.program_id(0) // tiles).to(tl.int64) * tall + tl.arange(0, tall)
    mask = (lines[:, None] < rows) & (columns[None, :] < features)
    places = lines[:, None] * row_stride + columns[None, :].to(tl.int64) * feature_stride
    shift = tl.load(bias + columns, mask=columns < features, other=0.0).to(tl.float32)
    values = tl.load(x + places, mask=mask, other=0.0).to(tl.float32) + shift[None, :]
    if tanh:
        # sqrt(2 / pi), and the cubic term of the paper's section 2; half of 1 + tanh u is the logistic function of 2u.
        inner = 0.7978845608028654 * (values + 0.044715 * values * values * values)
        result = values / (1.0 + tl.exp(-2.0 * inner))
    else:
        result = values * 0.5 * (1.0 + tl.erf(values * 0.7071067811865476))
    tl.store(out + lines[:, None] * features + columns[None, :], result.to(out.dtype.element_ty), mask=mask)


def _start(out: Tensor, x: Tensor, bias: Tensor, approximate: str) -> None:
    if x.numel() == 0:
        return
    features = x.shape[-1]
    lines = x.reshape(-1, features)
    sizes = _sizes(features)
    tiles = -(-lines.shape[0] // sizes["tall"]) * -(-features // sizes["across"])
    arguments = (lines, bias.contiguous(), out, *lines.shape, *lines.stride())
    launch(_tile, tiles, x.device, *arguments, tanh=approximate == "tanh", **sizes)


def _empty(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    check(x.dim() >= 1, "bias_gelu takes at least one dimension, the features")
    check(x.is_floating_point(), f"bias_gelu takes floats, not {x.dtype}")
    check(bias.shape == x.shape[-1:], f"bias_gelu: the bias has the shape {list(bias.shape)}, not {[x.shape[-1]]}")
    check(approximate in ("none", "tanh"), f"bias_gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return x.new_empty(x.shape)


bias_gelu = operator("bias_gelu", bias_gelu_reference, _empty, _start)


def _sizes(features: int) -> dict[str, int]:
    across = min(next_power_of_two(features), _MOST_COLUMNS)
    return {"tall": _TILE // across, "across": across}


def _example(device: str) -> tuple[Tensor, Tensor, str]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 9, generator=generator).to(device), torch.randn(9, generator=generator).to(device), "none"


KERNEL = Kernel(
    name="bias_gelu",
    operators={
        "bias_gelu": Operator(
            run=bias_gelu,
            reference=bias_gelu_reference,
            example=_example,
            bytes_moved=lambda x, bias, approximate: 2 * size_of(x) + size_of(bias),
        )
    },
)
