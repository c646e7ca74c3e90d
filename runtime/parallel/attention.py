"""How the CPU's attention operator is split: DTensor knows those of GPUs, and for this one no backward pass (read in 2.13)."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

_Shardings = list[tuple[list[Placement | None], list[Placement | None]]]
_aten = torch.ops.aten


def _alike(outputs: int, tensors: int, others: int) -> _Shardings:
    """All tensors whole, or all split over rows (dimension 0) or over heads (1)."""
    ways: list[Placement] = [Replicate(), Shard(0), Shard(1)]
    return [([way] * outputs, [*[way] * tensors, *[None] * others]) for way in ways]


def register() -> None:
    """Tell DTensor; once is enough."""

    @register_sharding(_aten._scaled_dot_product_flash_attention_for_cpu.default)  # type: ignore[untyped-decorator]
    def forward(*arguments: Any, **_: Any) -> _Shardings:
        return _alike(2, 3, len(arguments) - 3)

    @register_sharding(_aten._scaled_dot_product_flash_attention_for_cpu_backward.default)  # type: ignore[untyped-decorator]
    def backward(*arguments: Any, **_: Any) -> _Shardings:
        return _alike(3, 6, len(arguments) - 6)
