"""Why a graph was captured again, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

InputKind = tuple[tuple[int, ...], torch.dtype, torch.device]
"""What a capture holds for of one input: the shape of a row, dtype and device."""


@dataclass(frozen=True)
class Recompile:
    """One capture after the first: its number, as `Graph.captures` counts, and the reason for it."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"capture {self.number}: {self.reason}"


def kinds_of(inputs: Sequence[torch.Tensor]) -> tuple[InputKind, ...]:
    """What distinguishes these inputs from those of another capture."""
    return tuple((tuple(value.shape[1:]), value.dtype, value.device) for value in inputs)


def described_inputs(names: Sequence[str], kinds: Sequence[InputKind]) -> str:
    """`images float32 [batch, 3, 224, 224]`, with the device where it is not the CPU."""
    return ", ".join(
        f"{name} {_short(dtype)} [{', '.join(map(str, ('batch', *row)))}]{'' if device.type == 'cpu' else f' on {device}'}"
        for name, (row, dtype, device) in zip(names, kinds, strict=True)
    )


def changed_inputs(names: Sequence[str], before: Sequence[InputKind], now: Sequence[InputKind]) -> str:
    """Which inputs differ, how they are now and how they were; `names` are those of the inputs now."""
    if len(before) != len(now):
        return f"the number of inputs is {len(now)}, before {len(before)}"
    changes = []
    for name, (old_row, old_dtype, old_device), (row, dtype, device) in zip(names, before, now, strict=True):
        parts = []
        if row != old_row:
            parts.append(f"row shape {row}, before {old_row}")
        if dtype != old_dtype:
            parts.append(f"dtype {_short(dtype)}, before {_short(old_dtype)}")
        if device != old_device:
            parts.append(f"device {device}, before {old_device}")
        if parts:
            changes.append(f"input {name} has {' and '.join(parts)}")
    return "; ".join(changes)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
