"""State dicts of global modules and their optimizers as files hold them: plain tensors, under the names that they had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .boxing import to_global
from .boxing import whole as whole_tensor
from .own_rows import mapped


def whole(value: Any) -> Any:
    """The whole value on every rank, as a plain tensor without a history: for printing, comparing and saving. Of a dictionary,
    list or tuple, as a state dict is, all that it holds; what is no tensor as it is.

    Where a tensor is split over ranks, all of them must call this alike; where each rank has it whole, nothing is moved.
    """
    if isinstance(value, dict | list | tuple):
        return mapped(whole, value)
    return whole_tensor(value) if isinstance(value, torch.Tensor) else value


def load_state(target: nn.Module | torch.optim.Optimizer, state: Mapping[str, Any], *, prefix: str = "", **options: Any) -> Any:
    """`target.load_state_dict(state, **options)` where the target's parameters are global and the state holds plain tensors.

    The names of a module's state begin with `prefix`, which is taken off. All ranks call this alike; rank 0's values are taken.
    """
    if isinstance(target, torch.optim.Optimizer):
        return target.load_state_dict(of_optimizer(target, dict(state)), **options)
    own = {**dict(target.named_parameters(remove_duplicate=False)), **dict(target.named_buffers(remove_duplicate=False))}
    named = {name.removeprefix(prefix) if name.startswith(prefix) else f"?{name}": value for name, value in state.items()}
    return target.load_state_dict({name: like(value, own.get(name)) for name, value in named.items()}, **options)


def like(value: Any, own: Any) -> Any:
    """A plain tensor of a global one's shape as global as that is, with rank 0's values; anything else as it is."""
    if not isinstance(own, DTensor) or not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    if value.shape != own.shape:
        return value  # load_state_dict says what is wrong
    return to_global(value.detach().to(own.to_local().device), own.device_mesh, own.placements)


def of_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """The state with what belongs to a parameter, and has its shape, as global as that is."""
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    owners = dict(zip(numbers, parameters, strict=False))  # of another number load_state_dict says what is wrong
    held = {
        number: {name: like(value, owners.get(number)) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": held}
