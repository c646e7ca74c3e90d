"""A model that a script calls in a way of its own, as one that makes scores of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ...reading.recipe import LiveModel, Place
from .seen import Call, tensors_in, value_at

_PLAIN = (bool, int, float, str, type(None))


class ScoresOf(nn.Module):  # type: ignore[misc]
    """A model that is called otherwise than `model(images)`, or gives more than scores: called as its script does."""

    def __init__(self, model: nn.Module, call: Call, output: Place | None, *, column: bool = False) -> None:
        super().__init__()
        self.model = model
        self._slot, self._flat, self._output, self._column = call.slot, call.flat, output, column
        rows = len(call.images)
        args, kwargs = list(call.args), dict(call.kwargs)
        if self._slot[0] == 0:
            cut = next((i for i, value in enumerate(args) if i > int(self._slot[1]) and _of_batch(value, rows)), len(args))
            args = args[:cut]
        kept = {name: value for name, value in kwargs.items() if name == self._slot[1] or not _of_batch(value, rows)}
        self._given = (with_item(tuple(args), self._slot[1:], None) if self._slot[0] == 0 else tuple(args), kept)

    def forward(self, images: torch.Tensor) -> Any:
        """The scores, [rows, classes], for images [rows, channels, height, width]."""
        args, kwargs = with_item(self._given, self._slot, images.flatten(1) if self._flat else images)
        made = self.model(*args, **kwargs)
        given = value_at(made, self._output) if self._output is not None else made
        return given.unsqueeze(1) if self._column else given


def adapted(model: nn.Module, call: Call, live: LiveModel) -> nn.Module:
    """The model itself where it is called with images alone and gives what is meant, else `ScoresOf` it."""
    alone = call.slot == (0, 0) and len(call.args) == 1 and not call.kwargs and not call.flat
    if alone and live.output is None and not live.column:
        return model
    return ScoresOf(model, call, live.output, column=live.column)


def beside_images(call: Call, *, of_batch: bool) -> dict[Place, Any]:
    """What a model is called with beside its images, by place: tensors that belong to the batch, or the others, and numbers.
    Sparse ones, such as a graph of labels, are not compared."""
    places: dict[Place, Any] = {}
    for first, values in ((0, dict(enumerate(call.args))), (1, call.kwargs)):
        for name, value in values.items():
            if isinstance(value, _PLAIN):
                places[first, name] = value
            leaves = [(path, leaf) for path, leaf in tensors_in(value) if leaf.layout == torch.strided and not leaf.is_meta]
            places |= {(first, name, *path): leaf for path, leaf in leaves}
    rows = len(call.images)
    return {place: value for place, value in places.items() if place != call.slot and _of_batch(value, rows) == of_batch}


def _of_batch(value: Any, rows: int) -> bool:
    """Whether an argument belongs to the batch, as targets do."""
    return any(item.dim() > 0 and len(item) == rows for _, item in tensors_in(value))


def with_item(value: Any, place: Place, item: Any) -> Any:
    """A nested value with another item at that place of it."""
    if not place:
        return item
    step, *rest = place
    changed = with_item(value[step], tuple(rest), item)
    if isinstance(value, Mapping):
        return {**value, step: changed}
    assert isinstance(step, int)
    items = [*value[:step], changed, *value[step + 1 :]]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a namedtuple takes them one by one
