"""Numbers that proofs are made with: fresh inputs, and differences as a share of the range."""

from __future__ import annotations

import torch


def fresh_rows(example: torch.Tensor, count: int, *, seed: int = 0) -> torch.Tensor:
    """`count` new rows shaped like the example's: floats normal with its mean and spread, others drawn from its range.

    NaN and infinity in the example do not count. Drawn on the CPU, whatever torch's default device is.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    shape = (count, *example.shape[1:])
    if example.is_floating_point():
        values = example.detach().double().cpu()
        values = values[values.isfinite()]
        spread = float(values.std(correction=0)) if values.numel() > 1 else 0.0
        mean = float(values.mean()) if values.numel() else 0.0
        drawn = torch.randn(shape, generator=generator, device="cpu") * (spread or 1.0) + mean
        return drawn.to(example.device, example.dtype)
    if example.dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator, device="cpu").to(example.device, torch.bool)
    low, high = int(example.min()), int(example.max())
    if example.dtype == torch.uint8 and low == high:
        low, high = 0, 255
    return torch.randint(low, high + 1, shape, generator=generator, device="cpu").to(example.device, example.dtype)


def padded_rows(value: torch.Tensor, count: int) -> torch.Tensor:
    """A contiguous copy with `count` rows: the last one is repeated, since zeros could be faster than real values."""
    return torch.cat([value, value[-1:].expand(count - value.shape[0], *value.shape[1:])]).contiguous()


def largest_difference(reference: torch.Tensor, other: torch.Tensor) -> float:
    """Largest |reference - other| as a share of the largest |reference|.

    NaN in the same places is agreement, elsewhere the difference is infinite.
    """
    if reference.numel() == 0:
        return 0.0
    a, b = reference.detach().double(), other.detach().double()
    if not torch.equal(torch.isnan(a), torch.isnan(b)):
        return float("inf")
    difference = torch.nan_to_num(torch.where(a == b, torch.zeros_like(a), a - b).abs(), nan=0.0)
    scale = float(torch.nan_to_num(a.abs(), nan=0.0, posinf=0.0).max())
    return float(difference.max()) / (scale or 1.0)
