"""Hooks by which a script looks on at its model: what they note is no output, and a packaged model has none."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from ....runtime.graph.observers import observers, place_of
from .seen import tensors_in


def without_observers(model: nn.Module, images: torch.Tensor) -> list[str]:
    """Take them out where the model, in evaluation mode, gives the same without them; "path:line" of each that was taken out.

    `images` are what it is called with. It is compared on others than those of which the hooks last took note: a model that
    reads what they noted, as one with outputs of inner layers does, would give the last ones' again.
    """
    found = list(observers(list(model.modules())))
    if not found:
        return []
    hooks = [(owner, key, owner[key]) for owner, key in found]
    others = images.detach().flip(-1) * 0.5
    try:
        with torch.enable_grad():  # a hook may want the gradient of what it notes
            wanted = _outputs(model, others)
            _outputs(model, images.detach())
        for owner, key, _ in hooks:
            del owner[key]
        same = _equal(_outputs(model, others), wanted)
    except Exception:  # noqa: BLE001 - whatever a model raises that misses what its hook notes
        same = False
    if not same:
        for owner, key, hook in hooks:
            owner[key] = hook
        return []
    places = (place_of(hook) for _, _, hook in hooks)
    return list(dict.fromkeys(f"{os.path.basename(path)}:{line}" for path, line in places))


def _outputs(model: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    return [value.detach() for _, value in tensors_in(model(images))]


def _equal(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    def equal(one: Any, other: Any) -> bool:
        return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)

    return len(found) == len(wanted) and all(map(equal, found, wanted))
