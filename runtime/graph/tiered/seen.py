"""A module as its calls were last looked at: what it holds, and what they leave."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..left_undone import acting_otherwise, holds_tensors, set_for_others


class Seen:
    """The modules in a module, and its last tensor, which training and loading change, too: a small module's call takes less
    than a look at all that it holds."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self._acting = acting_otherwise(self.modules)
        self._for_others: list[tuple[dict[str, Any], str]] | None = None
        held = [*model.parameters(), *model.buffers()]
        self.lazy = any(nn.parameter.is_lazy(value) for value in held)
        tensors = [] if self.lazy else [value for value in held if not value.is_inference()]
        self._last = tensors[-1] if tensors else None
        self._look = self._now()

    def changed(self) -> bool:
        return self._now() != self._look

    def trains_inside(self) -> bool:
        """Whether a part of a model in evaluation mode is in training mode, and computes something else in it: a dropout that
        is to draw, statistics that are to follow the data."""
        return not trains(self.modules[0]) and any(map(trains, self._acting))

    def kept_for_others(self) -> str | None:
        """An attribute in which a call keeps tensors that no module reads: for the script."""
        return next((name for table, name in self.sets_for_others() if holds_tensors(table.get(name))), None)

    def sets_for_others(self) -> list[tuple[dict[str, Any], str]]:
        """The attributes that calls set and no module reads."""
        if self._for_others is None:
            self._for_others = set_for_others(self.modules)
        return self._for_others

    def _now(self) -> tuple[int, ...]:
        return () if self._last is None else (self._last._version, self._last.data_ptr())


def trains(module: nn.Module) -> bool:
    """Whether it is in training mode; frozen TorchScript has none."""
    return getattr(module, "training", False)
