"""What distinguishes one kind of training step from another, and in words what differs between two."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_NAMED = 3


@dataclass(frozen=True)
class StepKind:
    """All that a captured step holds for: its inputs, whether it updates, and what `TrainingState` and autocast say.

    `inputs` are `kind(...)` of each; `layout` and `settings` are the state's `layout()` and `hyperparameters()`.
    """

    inputs: tuple[Any, ...]
    updates: bool
    layout: Any
    settings: Any
    autocast: Hashable
    constants: Hashable = None
    """What `Constants` reads."""

    def differences(self, before: StepKind, names: Sequence[str]) -> list[str]:
        """What is other than it was `before`, most telling first; `names` are those of the inputs. Empty when equal."""
        found = [
            f"input {name} has {_words(now, old)}"
            for name, now, old in zip(names, self.inputs, before.inputs, strict=False)
            if now != old
        ]
        if len(self.inputs) != len(before.inputs):
            found = [f"the number of inputs is {len(self.inputs)}, before {len(before.inputs)}"]
        modes, parameters, buffers, state = self.layout
        old_modes, old_parameters, old_buffers, old_state = before.layout
        if modes != old_modes:
            found.append("a module changed between training and evaluation mode")
        found += _settings(before.settings, self.settings)
        if self.autocast != before.autocast:
            found.append(f"autocast is {self.autocast or 'off'}, before {before.autocast or 'off'}")
        if self.constants != before.constants:
            found.append("a number that forward or the loss reads is another")
        plain, old_plain = (
            _by_name((name, (grads, own)) for name, grads, _, own in side) for side in (parameters, old_parameters)
        )
        if changed := _changed(old_plain, plain):
            found.append(f"of another shape, layout, dtype or requires_grad: {changed}")
        if changed := _changed(_by_name(old_buffers), _by_name(buffers)):
            found.append(f"buffers of another shape, dtype or device: {changed}")
        if state != old_state:
            found.append("the optimizer's state has other tensors")
        if self.updates != before.updates:
            found.append(f"this step {'updates' if self.updates else 'only adds to the gradients'}, as the one before did not")
        gradients, old_gradients = (
            _by_name((name, grad) for name, _, grad, _ in side) for side in (parameters, old_parameters)
        )
        if gradients != old_gradients and gradients.keys() == old_gradients.keys():
            found.append(f"gradients {'stand' if _any_tensor(gradients) else 'do not stand'} behind parameters before it")
        return found


def _words(now: Any, before: Any) -> str:
    """What differs between the kinds (shape, strides, dtype, device, how it lies on a mesh) of two tensors."""
    parts = itertools.zip_longest(("shape", "strides", "dtype", "device", "mesh and placements"), now, before, fillvalue="none")
    changes = [f"{what} {new}, before {old}" for what, new, old in parts if new != old]
    return changes[0] if now[0] != before[0] else " and ".join(changes)  # other strides come with another shape


def _by_name(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """By the name in the user's module: in the state, the module's number stands before it."""
    return {name.partition(".")[2]: value for name, value in items}


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _settings(before: Any, now: Any) -> list[str]:
    if len(before) != len(now):
        return [f"the optimizer has {len(now)} groups of parameters, before {len(before)}"]
    found = []
    for old, new in zip(map(dict, before), map(dict, now), strict=True):
        found += [f"{key} is {value}, before {old.get(key)}" for key, value in new.items() if old.get(key) != value]
    return list(dict.fromkeys(found))


def _any_tensor(gradients: Mapping[str, Any]) -> bool:
    return any(isinstance(value, tuple) and isinstance(value[2], torch.dtype) for value in gradients.values())
