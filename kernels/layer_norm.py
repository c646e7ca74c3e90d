"""Layer norm over the last dimension, and with the residual sum before it: what a transformer's blocks begin and go on with.

`headrace::layer_norm(x [..., features], weight?, bias?, eps) -> normed` and
`headrace::add_layer_norm(x, residual, weight?, bias?, eps) -> (normed, sum)`, where sum = x + residual goes on along the
residual stream. Values are float32, bfloat16 or float16, weight and bias [features] of any of these; results have x's dtype
and are contiguous. The sum is rounded to x's dtype before it is normalized, as two separate operators do; mean and variance
(biased, eps added under the root) are computed in float32. A row with NaN or infinity is NaN throughout, as
`torch.nn.functional.layer_norm` makes it. float64 is computed by the reference. Raises KernelError on shapes that do not fit.

Roofline: x (and residual) read once, normed (and sum) written once. The program takes one row, which stays in registers up to
16384 features; longer rows are read three times. J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization" (2016), equation 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._kernel import Kernel, Operator
from ._launch import check, jit, launch, next_power_of_two, operator, size_of, tl, wide

_MOST_IN_REGISTERS = 16384


def layer_norm_reference(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """The same in plain torch, in float32, or float64 for float64."""
    values = wide(x)
    centered = values - values.mean(-1, keepdim=True)
    normed = centered / torch.sqrt(centered.square().mean(-1, keepdim=True) + eps)
    normed = normed if weight is None else normed * weight
    return (normed if bias is None else normed + bias).to(x.dtype).contiguous()


def add_layer_norm_reference(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The same in plain torch, in float32, or float64 for float64."""
    total = (x + residual).contiguous()
    return layer_norm_reference(total, weight, bias, eps), total


@jit
def _loaded(
    x: tl.tensor, residual: tl.tensor, lanes: tl.tensor, features: tl.tensor, x_stride: tl.tensor, residual_stride: tl.tensor,
    adds: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    mask = lanes < features
    far = lanes.to(tl.int64)
    values = tl.load(x + far * x_stride, mask=mask, other=0.0).to(tl.float32)
    if adds:
        values += tl.load(residual + far * residual_stride, mask=mask, other=0.0).to(tl.float32)
        values = values.to(x.dtype.element_ty).to(tl.float32)
    return values


@jit
def _row(
    x: tl.tensor, residual: tl.tensor, weight: tl.tensor, bias: tl.tensor, normed: tl.tensor, total: tl.tensor,
    features: tl.tensor, x_row_stride: tl.tensor, x_stride: tl.tensor, residual_row_stride: tl.tensor,
    residual_stride: tl.tensor, eps: tl.tensor, adds: tl.constexpr, scales: tl.constexpr, shifts: tl.constexpr,
    block: tl.constexpr, blocks: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row_stride
    residual += row * residual_row_stride
    lanes = tl.arange(0, block)
    values = _loaded(x, residual, lanes, features, x_stride, residual_stride, adds)
    mean = tl.sum(values, 0)
    for number in range(1, blocks):
        mean += tl.sum(_loaded(x, residual, number * block + lanes, features, x_stride, residual_stride, adds), 0)
    mean = mean / features
    centered = tl.where(lanes < features, values - mean, 0.0)
    variance = tl.sum(centered * centered, 0)
    for number in range(1, blocks):
        more = number * block + lanes
        others = _loaded(x, residual, more, features, x_stride, residual_stride, adds)
        others = tl.where(more < features, others - mean, 0.0)
        variance += tl.sum(others * others, 0)
    scale = 1.0 / tl.sqrt(variance / features + eps)
    for number in range(blocks):
        more = number * block + lanes
        mask = more < features
        if blocks > 1:
            values = _loaded(x, residual, more, features, x_stride, residual_stride, adds)
        result = (values - mean) * scale
        if scales:
            result *= tl.load(weight + more, mask=mask, other=0.0).to(tl.float32)
        if shifts:
            result += tl.load(bias + more, mask=mask, other=0.0).to(tl.float32)
        tl.store(normed + row * features + more, result.to(normed.dtype.element_ty), mask=mask)
        if adds:
            tl.store(total + row * features + more, values.to(total.dtype.element_ty), mask=mask)


def _empty(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    _check(x, weight, bias)
    return x.new_empty(x.shape)


def _empty_pair(x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    _check(x, weight, bias)
    check(x.shape == residual.shape, f"add_layer_norm takes equal shapes, not {list(x.shape)} and {list(residual.shape)}")
    check(x.dtype == residual.dtype, f"add_layer_norm takes one dtype, not {x.dtype} and {residual.dtype}; convert one")
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _check(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    check(x.dim() >= 1, "layer_norm takes at least one dimension, the features")
    check(x.is_floating_point(), f"layer_norm takes floats, not {x.dtype}")
    for name, item in (("weight", weight), ("bias", bias)):
        if item is not None:
            check(item.shape == x.shape[-1:], f"layer_norm: the {name} has the shape {list(item.shape)}, not {[x.shape[-1]]}")


def _start(out: Tensor | tuple[Tensor, Tensor], x: Tensor, *given: Any) -> None:
    """`given` are the residual, where there is one and so two results, the weight, the bias and eps."""
    if x.numel() == 0:
        return
    normed, total = out if isinstance(out, tuple) else (out, out)
    residual, weight, bias, eps = (None,) * (4 - len(given)) + given
    features = x.shape[-1]
    rows = x.reshape(-1, features)
    others = rows if residual is None else residual.reshape(-1, features)
    affine = (rows if item is None else item.contiguous() for item in (weight, bias))
    tensors = (rows, others, *affine, normed, total)
    numbers = (features, *rows.stride(), *others.stride(), eps)
    flags = {"adds": residual is not None, "scales": weight is not None, "shifts": bias is not None}
    launch(_row, rows.shape[0], x.device, *tensors, *numbers, **flags, **_blocks(features), warps=_warps(features))


def _blocks(features: int) -> dict[str, int]:
    block = min(next_power_of_two(features), _MOST_IN_REGISTERS)
    return {"block": block, "blocks": -(-features // block)}


def _warps(features: int) -> int:
    """Sixteen values or so in each thread's registers."""
    return min(16, max(1, next_power_of_two(features) // 512))


layer_norm = operator("layer_norm", layer_norm_reference, _empty, _start)
add_layer_norm = operator("add_layer_norm", add_layer_norm_reference, _empty_pair, _start)


def _example(device: str) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    generator = torch.Generator().manual_seed(0)
    x, residual = torch.randn(2, 2, 3, 7, generator=generator).to(device)
    weight, bias = torch.randn(2, 7, generator=generator).to(device)
    return x, residual, weight, bias, 1e-6


KERNEL = Kernel(
    name="layer_norm",
    operators={
        "layer_norm": Operator(
            run=layer_norm,
            reference=layer_norm_reference,
            example=lambda device: (_example(device)[0], *_example(device)[2:]),
            bytes_moved=lambda x, weight, bias, eps: 2 * size_of(x) + size_of(weight, bias),
        ),
        "add_layer_norm": Operator(
            run=add_layer_norm,
            reference=add_layer_norm_reference,
            example=_example,
            bytes_moved=lambda x, residual, weight, bias, eps: 4 * size_of(x) + size_of(weight, bias),
        ),
    },
)
