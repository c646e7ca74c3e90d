"""What surrounds a training step: scaled loss, checkpointed activations, random numbers, and the comparison of two steps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from ..parallel.shares import taken_apart


class ScaledBackward(TorchFunctionMode):  # type: ignore[misc]
    """`loss.backward()` starts from the scaler's factor instead of one, as if the user had written scaler.scale(loss)."""

    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__()
        self.scale = scale

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.backward and len(args) == 1 and kwargs.get("gradient") is None:
            loss = args[0]
            kwargs = {**kwargs, "gradient": self.scale.to(loss.dtype).expand(loss.shape)}
        return func(*args, **kwargs)


@contextlib.contextmanager
def checkpointed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Within the block these modules keep no activations: the backward pass computes them again (Chen et al. 2016)."""
    before = [vars(module).get("forward") for module in modules]
    for module in modules:
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    try:
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            del module.forward
            if forward is not None:
                module.forward = forward


@contextlib.contextmanager
def evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Within the block these modules are in evaluation mode, and afterwards each is in its own again."""
    before = [(part, part.training) for module in modules for part in module.modules()]
    for part, _ in before:
        part.training = False
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def exchanging(modules: Sequence[nn.Module]) -> str:
    """Why these modules train eagerly: they exchange data with other devices outside of what is traced. "" where none does."""
    for part in (inner for module in modules for inner in module.modules()):
        if isinstance(part, nn.parallel.DistributedDataParallel):
            return "DistributedDataParallel exchanges gradients while they are computed, which a captured step would leave out"
        if isinstance(part, nn.DataParallel) and len(part.device_ids) > 1:
            return "DataParallel copies the model to several devices at each call"
        if type(part).__name__ in ("FullyShardedDataParallel", "DeepSpeedEngine"):
            return f"{type(part).__name__} moves parameters between devices at each call"
    return ""


def difference(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor], tolerance: float) -> str | None:
    """Why the tensors differ by more than that share of each one's range; None when they do not."""
    if len(expected) != len(actual):
        return f"it gives {len(actual)} tensors, not {len(expected)}"
    (expected, lie), (actual, lies) = taken_apart(expected), taken_apart(actual)
    if [one and one.placements for one in lie] != [one and one.placements for one in lies]:
        return "its global tensors lie otherwise"
    for wanted, given in zip(expected, actual, strict=True):
        if wanted.shape != given.shape or wanted.dtype != given.dtype:
            return f"it gives {given.dtype} {tuple(given.shape)}, not {wanted.dtype} {tuple(wanted.shape)}"
        if wanted.numel() and not torch.equal(wanted, given):
            a, b = wanted.double(), given.double()
            scale = float(torch.nan_to_num(a.abs()).max()) or 1.0
            largest = float(torch.nan_to_num((a - b).abs(), nan=float("inf")).max())
            if not largest <= tolerance * scale:
                return f"values differ by {largest / scale:.1e} of their range"
    return None


def random_state(device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The states of the generators that a step on that device draws from."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def set_random_state(device: torch.device, state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
    """Put back what `random_state` gave."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
