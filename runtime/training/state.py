"""Everything that a training step reads and writes: parameters, buffers, gradients, the optimizer's state, learning rates."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import nn

from ...errors import BackendError, InputError
from ..parallel.shares import layout_of


class TrainingState:
    """The live tensors of a step, in one order. `look` finds them at the start of every step: users may replace any of them
    in between. Parameters that share a tensor are one. Gradients stand behind the parameters that have one.
    """

    def __init__(self, modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        self.container = nn.ModuleList(modules)  # registers nothing with the modules themselves
        self.optimizer = optimizer
        self.look()

    def look(self) -> None:
        """Find the parameters and buffers that the modules have now."""
        self.parameters: dict[str, nn.Parameter] = dict(self.container.named_parameters())
        self.buffers: dict[str, torch.Tensor] = dict(self.container.named_buffers())

    def slots(self) -> tuple[tuple[str, str], ...]:
        """(parameter's name, key) of each tensor in the optimizer's state. Raises BackendError where it keeps anything else:
        a captured step would take a Python number for a constant."""
        found = []
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    found.append((name, key))
                elif value is not None:
                    kind = type(value).__name__
                    raise BackendError(f"{type(self.optimizer).__name__} keeps {key!r} as a {kind}, not as a tensor")
        return tuple(found)

    def tensors(self, slots: Sequence[tuple[str, str]]) -> list[torch.Tensor]:
        """All of them: parameters, buffers, gradients, the optimizer's state, one float64 learning rate per group."""
        rates = [torch.as_tensor(group["lr"], dtype=torch.float64) for group in self.optimizer.param_groups]
        return [
            *(value.detach() for value in self.parameters.values()),
            *self.buffers.values(),
            *(value.grad for value in self.parameters.values() if value.grad is not None),
            *(self.optimizer.state[self.parameters[name]][key] for name, key in slots),
            *rates,
        ]

    def written(self, slots: Sequence[tuple[str, str]]) -> list[torch.Tensor]:
        """Those that a step writes in place: parameters, buffers, the optimizer's state."""
        return [
            *(value.detach() for value in self.parameters.values()),
            *self.buffers.values(),
            *(self.optimizer.state[self.parameters[name]][key] for name, key in slots),
        ]

    def layout(self) -> Hashable:
        """What a captured step depends on beside its inputs; another layout needs another capture."""
        state = self.optimizer.state
        return (
            tuple(member.training for member in self.container.modules()),
            tuple((name, value.requires_grad, kind(value.grad), kind(value)) for name, value in self.parameters.items()),
            tuple((name, kind(value)) for name, value in self.buffers.items()),
            tuple(tuple((key, kind(item)) for key, item in state.get(value, {}).items()) for value in self.parameters.values()),
        )

    def gradients(self) -> dict[str, torch.Tensor]:
        """Copies of the gradients that stand behind the parameters, by their names among the modules."""
        return {name: value.grad.clone() for name, value in self.parameters.items() if value.grad is not None}

    def set_gradients(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Put those behind the parameters, and none behind the others. Raises InputError for names that are not there."""
        if unknown := set(gradients) - set(self.parameters):
            raise InputError(f"the state has gradients of {', '.join(sorted(unknown))}, which the graph does not have")
        for name, value in self.parameters.items():
            given = gradients.get(name)
            value.grad = None if given is None else given.to(value, copy=True)

    def hyperparameters(self) -> Hashable:
        """The settings of each group but the learning rate, which every step reads; a captured step has them as constants."""
        return tuple(
            tuple((key, repr(value)) for key, value in sorted(group.items()) if key not in ("params", "lr"))
            for group in self.optimizer.param_groups
        )

    def strangers(self) -> bool:
        """Whether the optimizer updates a tensor that belongs to none of the modules."""
        known = {id(value) for value in self.parameters.values()}
        return any(id(value) not in known for group in self.optimizer.param_groups for value in group["params"])


def kind(value: object) -> Hashable:
    """Shape, strides ("contiguous" where they are), dtype and device of a tensor, and how a global one lies; else the type."""
    if not isinstance(value, torch.Tensor):
        return type(value).__qualname__
    strides: Hashable = "contiguous"  # asked of every tensor at every step, so the usual case must be quick
    if not value.is_contiguous():
        strides = tuple(step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1)
    lies = layout_of(value)
    return (tuple(value.shape), strides, value.dtype, value.device, *(() if lies is None else (lies,)))
