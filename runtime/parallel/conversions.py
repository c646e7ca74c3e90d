"""`to_global` for tensors and modules alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from . import attention, boxing, private
from .modules import module_to_global
from .sbp import Sbp, broadcast

attention.register()
private.split_convolutions()
private.exact_losses()


@overload
def to_global(
    value: torch.nn.Module, placement: DeviceMesh, sbp: Sbp | Mapping[str, Sbp] = ..., **options: Any
) -> torch.nn.Module: ...
@overload
def to_global(value: torch.Tensor, placement: DeviceMesh | None = None, sbp: Sbp = ..., **options: Any) -> DTensor: ...
def to_global(value: Any, placement: Any = None, sbp: Any = broadcast, **options: Any) -> Any:
    """A tensor as a global one (`boxing.to_global`, with its `shares`), or a module whose parameters become global, in place
    (`modules.module_to_global`, with its `zero` and `axis`)."""
    if isinstance(value, torch.nn.Module):
        return module_to_global(value, placement, sbp, **options)
    return boxing.to_global(value, placement, sbp, **options)
