"""A model that drops the dimension of a batch of one, as `squeeze()` does, is packaged as one that keeps it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .scores import with_item
from .seen import tensors_in, value_at


def keep_rows(model: nn.Module, images: torch.Tensor) -> bool:
    """Have `model`, which is called with `images` [rows, ...], give outputs of one row in a dimension of their own, as it
    gives those of several; whether it did not. Its class is one of the same name from then on."""
    if isinstance(model, torch.jit.ScriptModule):
        return False
    row = images.detach()[:1]
    try:
        with torch.no_grad():
            one, two = (dict(tensors_in(model(torch.cat([row] * rows)))) for rows in (1, 2))
    except Exception:  # noqa: BLE001 - whatever the user's model raises; capture says where
        return False
    ranks = {place: value.dim() for place, value in two.items() if place in one and _is_dropped(one[place], value)}
    if not ranks or any(isinstance(step, str) and step.startswith(".") for place in ranks for step in place):
        return False
    kind: type[Any] = type(model)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        rows = next(value.shape[0] for _, value in tensors_in((args, kwargs)))
        outputs = kind.forward(self, *args, **kwargs)
        for place, rank in ranks.items():
            value = value_at(outputs, place)
            # always, since a graph that is captured with several rows has to do it for one
            outputs = with_item(outputs, place, value.reshape(rows, *value.shape[value.dim() - rank + 1 :]))
        return outputs

    forward.__wrapped__ = kind.forward  # type: ignore[attr-defined]
    names = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    model.__class__ = type(kind.__name__, (kind,), names)
    return True


def _is_dropped(one: torch.Tensor, two: torch.Tensor) -> bool:
    return two.dim() > 0 and len(two) == 2 and one.shape == two.shape[1:]
