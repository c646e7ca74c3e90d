"""What calls leave in a model: its answers must not depend on it, since nobody knows which images come before others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ....errors import SandboxError
from ....runtime.capture.state_guard import state_guard
from .seen import tensors_in

_NAMED = 4  # attributes
_REGISTERED = ("_parameters", "_buffers", "_modules")


def drop_histories(model: nn.Module) -> None:
    """Detach the activations that modules keep of their last call: torch copies no tensor that has a history."""
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                part.__dict__[name] = value.detach()
            elif isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
                part.__dict__[name] = [item.detach() if isinstance(item, torch.Tensor) else item for item in value]


def refuse_kept(model: nn.Module, images: torch.Tensor) -> None:
    """Raise SandboxError for a model that answers by what it was called with before."""
    if kept := kept_of_earlier_calls(model, images):
        raise SandboxError(
            "its answers depend on images that it was called with before, of which it keeps something "
            f"({', '.join(kept[:_NAMED])}), and a service answers any images in any order; have it keep nothing, or what a "
            "file of weights gives"
        )


def kept_of_earlier_calls(model: nn.Module, images: torch.Tensor) -> list[str]:
    """The attributes in which a model, in evaluation mode, keeps what decides its answers to other images; none where it
    answers alike whatever it was called with before. `images` [rows, ...] are what it is called with."""
    first, other, asked = images.detach(), images.detach().flip(-1) * 0.5, images.detach().flip(-2) * 0.8
    try:
        with state_guard(model), torch.no_grad():
            before = dict(_state(model))
            model(first)
            names = [name for name, value in _state(model) if before.get(name) != value]
            wanted = _outputs(model, asked) if names else []
        if not names:
            return []
        with state_guard(model), torch.no_grad():
            model(other)
            found = _outputs(model, asked)
    except Exception:  # noqa: BLE001 - whatever the user's model raises; capture says where
        return []
    same = len(found) == len(wanted) and all(map(_equal, found, wanted))
    return [] if same else names


def _state(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """What tells of each attribute whether something was written there since."""
    for path, part in model.named_modules():
        for name, value in (*vars(part).items(), *part.named_buffers(recurse=False)):
            if name not in _REGISTERED:
                size = len(value) if isinstance(value, list | dict | set) else None
                version = value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None
                yield f"{path}.{name}".lstrip("."), (id(value), size, version)


def _outputs(model: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    return [value.detach().clone() for _, value in tensors_in(model(images))]


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
