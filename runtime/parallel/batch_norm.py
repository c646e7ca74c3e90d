"""Batch normalization over a global batch: its mean and variance are those of all ranks' rows, as on one device."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from .boxing import to_global
from .sbp import broadcast


def global_batch_norm(module: _BatchNorm, values: DTensor) -> torch.Tensor:
    """What the module computes of values [n, channels, ...], whatever they are split over but the channels.

    Written out, since the operator takes a whole batch: two sums are made whole on every rank, and so are their gradients.
    """
    dims = [dim for dim in range(values.ndim) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(values.ndim)]
    whole = (broadcast,) * values.device_mesh.ndim
    count = values.numel() // values.shape[1]
    tracked = isinstance(module.running_mean, torch.Tensor) and isinstance(module.running_var, torch.Tensor)
    if module.training or not tracked:
        mean = to_global(values.sum(dims), sbp=whole) / count
        centered = values - mean.view(shape)
        variance = to_global((centered * centered).sum(dims), sbp=whole) / count
        if module.training and tracked:
            _track(module, mean.detach(), variance.detach() * (count / max(count - 1, 1)))
    else:
        mean, variance = module.running_mean, module.running_var
        centered = values - mean.view(shape)
    result = centered * torch.rsqrt(variance + module.eps).view(shape)
    if module.weight is not None:
        result = result * module.weight.view(shape)
    return result if module.bias is None else result + module.bias.view(shape)


def _track(module: _BatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    with torch.no_grad():
        if module.num_batches_tracked is not None:
            module.num_batches_tracked.add_(1)
        for running, value in ((module.running_mean, mean), (module.running_var, variance)):
            assert running is not None
            if module.momentum is None:  # the mean of all batches
                running.add_((value - running) / module.num_batches_tracked.to(value.dtype))
            else:
                running.mul_(1 - module.momentum).add_(value, alpha=module.momentum)


class GlobalBatchNorm(nn.Module):  # type: ignore[misc]
    """What a batch normalization becomes, beside what it is, when its parameters become global."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not isinstance(values, DTensor):
            return super().forward(values)  # type: ignore[no-any-return, misc]
        self._check_input_dim(values)  # type: ignore[operator]
        return global_batch_norm(self, values)  # type: ignore[arg-type]
