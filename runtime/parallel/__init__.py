"""`headrace.parallel`: one program on many devices. Global tensors, the words for how they lie, and their conversions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from . import attention, sbp
from .boxing import to_global as _tensor_to_global
from .boxing import to_local, whole
from .checkpoint import resume, save
from .head import cross_entropy, topk
from .mesh import placement, rank, world, world_size
from .modules import boxed, module_to_global
from .pipeline import Pipeline
from .private import guarded, implicit
from .watch import watched

__all__ = [
    "Pipeline",
    "boxed",
    "cross_entropy",
    "guarded",
    "implicit",
    "placement",
    "rank",
    "resume",
    "save",
    "sbp",
    "to_global",
    "to_local",
    "topk",
    "watched",
    "whole",
    "world",
    "world_size",
]

attention.register()


@overload
def to_global(
    value: torch.nn.Module, placement: DeviceMesh, sbp: sbp.Sbp | Mapping[str, sbp.Sbp] = ..., **options: Any
) -> torch.nn.Module: ...
@overload
def to_global(value: torch.Tensor, placement: DeviceMesh | None = None, sbp: sbp.Sbp = ..., **options: Any) -> DTensor: ...
def to_global(value: Any, placement: Any = None, sbp: Any = sbp.broadcast, **options: Any) -> Any:
    """A tensor as a global one (`boxing.to_global`, with its `shares`), or a module whose parameters become global, in place
    (`modules.module_to_global`, with its `zero` and `axis`)."""
    if isinstance(value, torch.nn.Module):
        return module_to_global(value, placement, sbp, **options)
    return _tensor_to_global(value, placement, sbp, **options)
