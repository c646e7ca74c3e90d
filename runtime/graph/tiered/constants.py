"""Calls with constants beside their tensors, as `model(images, temperature=1.5)`: each choice of constants is a module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import nn

_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
_HERE = ...  # where a tensor is


class WithConstants(nn.Module):  # type: ignore[misc]
    """A module with the constants of a call; it takes the call's tensors, in the order in which they stand there."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._given = tuple(map(_constant, args)), {name: _constant(value) for name, value in named.items()}

    @property
    def training(self) -> bool:
        """The module's mode: this one computes nothing itself."""
        return getattr(self.module, "training", False)

    @training.setter
    def training(self, mode: bool) -> None:
        pass

    def forward(self, *tensors: torch.Tensor) -> Any:
        """What the module returns for these tensors and the constants."""
        args, named = self._given
        following = iter(tensors)
        placed = [next(following) if value is _HERE else value for value in args]
        return self.module(*placed, **{name: next(following) if value is _HERE else value for name, value in named.items()})


def with_constants(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> WithConstants:
    """The module with the constants of this call, whose class is called as the module's."""
    kind = type(type(module).__name__, (WithConstants,), {})
    made: WithConstants = kind(module, args, named)
    return made


def in_order(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments by place as far as that goes, without constants that are the function's defaults."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **named)
    except (TypeError, ValueError):  # the function's own complaint, or one that tells nothing of itself
        return args, dict(named)
    parameters = signature.parameters
    if any(item.kind is item.VAR_POSITIONAL for item in parameters.values()):
        return args, dict(named)
    for name in list(bound.arguments):
        item = parameters[name]
        same = _key(bound.arguments[name]) == _key(item.default) is not None
        if same and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY):
            del bound.arguments[name]
    return bound.args, bound.kwargs


def tensors(args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Those of a call."""
    return tuple(value for value in (*args, *named.values()) if isinstance(value, torch.Tensor))


def call_key(args: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable:
    """What calls with the same constants at the same places have in common; None where something else than tensors and
    constants is given."""
    keys = [_HERE if isinstance(value, torch.Tensor) else _key(value) for value in (*args, *named.values())]
    return None if None in keys else (len(args), *named, *keys)


def _constant(value: Any) -> Any:
    return _HERE if isinstance(value, torch.Tensor) else value


def _key(value: Any) -> Hashable:
    """What tells two constants apart, also 1, 1.0 and True, and 0.0 and -0.0; None for what is none."""
    if type(value) is tuple:
        items = tuple(map(_key, value))
        return None if None in items else items
    return (type(value), repr(value)) if type(value) in _PLAIN else None
