"""Layers that torch has on GPUs alone, as they compute there: SyncBatchNorm over ranks, and DataParallel's replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """The sum over all ranks; what comes back is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


def synchronized(original: Callable[..., Any], layer: nn.SyncBatchNorm, values: torch.Tensor) -> torch.Tensor:
    """`SyncBatchNorm.forward` on the CPU: in training the mean and variance of the rows of all ranks."""
    if values.device.type != "cpu":
        return original(layer, values)  # type: ignore[no-any-return]
    training = layer.training or layer.running_mean is None
    if not training or not dist.is_initialized() or dist.get_world_size() == 1:
        return _BatchNorm.forward(layer, values)
    dims = [dim for dim in range(values.ndim) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(values.ndim)]
    count = _Sum.apply(values.new_tensor(float(values.numel() // values.shape[1])))
    mean = _Sum.apply(values.sum(dims)) / count
    centered = values - mean.view(shape)
    variance = _Sum.apply((centered * centered).sum(dims)) / count
    if layer.training and layer.running_mean is not None and layer.running_var is not None:
        with torch.no_grad():
            assert layer.num_batches_tracked is not None
            layer.num_batches_tracked.add_(1)
            share = layer.momentum if layer.momentum is not None else 1.0 / float(layer.num_batches_tracked)
            layer.running_mean.lerp_(mean, share)
            layer.running_var.lerp_(variance * count / (count - 1).clamp(min=1), share)
    result = centered * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.weight is not None:
        result = result * layer.weight.view(shape)
    return result if layer.bias is None else result + layer.bias.view(shape)


def replicated(replicas: int) -> Callable[..., Any]:
    """`DataParallel.forward` on the CPU: the rows in as many chunks as there would be GPUs, one after the other.

    The buffers that stay are those of the first replica, which is the module itself.
    """

    def forward(original: Callable[..., Any], wrapper: nn.DataParallel, *args: Any, **named: Any) -> Any:
        rows = next((value for value in (*args, *named.values()) if isinstance(value, torch.Tensor) and value.ndim), None)
        if rows is None or getattr(wrapper, "dim", 0) != 0:
            return original(wrapper, *args, **named)
        count = len(rows.chunk(replicas))
        results = []
        kept: dict[str, torch.Tensor] = {}
        for number in range(count):

            def own(value: Any, number: int = number) -> Any:
                return value.chunk(replicas)[number] if isinstance(value, torch.Tensor) and value.ndim else value

            results.append(wrapper.module(*map(own, args), **{name: own(value) for name, value in named.items()}))
            if number == 0:
                kept = {name: value.clone() for name, value in wrapper.module.named_buffers()}
            else:
                for name, value in wrapper.module.named_buffers():
                    value.data = kept[name].clone()
        return _gathered(results)

    return forward


def _gathered(results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([value if value.ndim else value[None] for value in results])
    if isinstance(first, dict):
        return type(first)((name, _gathered([value[name] for value in results])) for name in first)
    return type(first)(_gathered(list(items)) for items in zip(*results, strict=True))
