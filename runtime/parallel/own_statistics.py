"""Batch normalization by each rank's own rows, as DistributedDataParallel has it: no training on one device is like it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from ...errors import PlacementError
from .batch_norm import global_batch_norm
from .boxing import to_global
from .sbp import broadcast, words


def own_batch_norm(module: _BatchNorm, values: DTensor) -> torch.Tensor:
    """What the module computes of values [n, channels, ...] that are split by rows over one axis of the mesh at most.

    In training each rank takes the mean and variance of its own rows, and the running ones are those of the first rank on
    every rank: DistributedDataParallel hands them out before each forward pass.
    """
    if not module.training and isinstance(module.running_mean, torch.Tensor):
        return global_batch_norm(module, values)
    if not all(placement.is_shard(0) or placement.is_replicate() for placement in values.placements):
        raise PlacementError(
            f"a batch normalization of each rank's own rows takes rows, and these are {words(values.placements)}"
        )
    summed = [Partial() if placement.is_shard(0) else Replicate() for placement in values.placements]
    weight, bias = (_own(getattr(module, name), summed) for name in ("weight", "bias"))
    mean, variance, factor = _running(module)
    result = functional.batch_norm(values.to_local(), mean, variance, weight, bias, True, factor, module.eps)
    with torch.no_grad():
        for buffer, value in ((module.running_mean, mean), (module.running_var, variance)):
            if buffer is not None and value is not None:
                buffer.copy_(_of_first_rank(value, buffer))
    return DTensor.from_local(result, values.device_mesh, values.placements, run_check=False)


def _own(value: Any, summed: list[Any]) -> torch.Tensor | None:
    return value.to_local(grad_placements=summed) if isinstance(value, DTensor) else value


def _running(module: _BatchNorm) -> tuple[torch.Tensor | None, torch.Tensor | None, float]:
    """This rank's copies of the running mean and variance, and the share that this batch has in the new ones."""
    with torch.no_grad():
        if not module.training or not isinstance(module.running_mean, DTensor):
            return None, None, 0.0
        factor = module.momentum
        if module.num_batches_tracked is not None:
            module.num_batches_tracked.add_(1)
            if factor is None:  # the mean of all batches
                factor = 1.0 / float(module.num_batches_tracked.to_local())
        return module.running_mean.to_local().clone(), module.running_var.to_local().clone(), factor or 0.0  # type: ignore[operator]


def _of_first_rank(value: torch.Tensor, like: DTensor) -> DTensor:
    """The first rank's value on every rank: a sum to which the others give nothing."""
    mesh = like.device_mesh
    first = not any(mesh.get_coordinate() or ())
    part = DTensor.from_local(
        value if first else torch.zeros_like(value), mesh, [Partial()] * mesh.ndim, run_check=False
    )  # fmt: skip
    return to_global(part, sbp=(broadcast,) * mesh.ndim)


class OwnBatchNorm(nn.Module):  # type: ignore[misc]
    """What a batch normalization becomes, beside what it is, where each rank is to take the statistics of its own rows."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not isinstance(values, DTensor):
            return super().forward(values)  # type: ignore[no-any-return, misc]
        self._check_input_dim(values)  # type: ignore[operator]
        return own_batch_norm(self, values)  # type: ignore[arg-type]
