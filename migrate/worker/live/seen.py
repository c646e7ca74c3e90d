"""What is noted of a module that a script calls with images: its calls, who reads its outputs, what they are compared with."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import nn

from ...reading.recipe import Place
from .choices import Chosen


@dataclass(frozen=True)
class Limit:
    """Numbers that an output was compared with, one or one for each of its columns, before or after a sigmoid."""

    values: tuple[float, ...]
    after_sigmoid: bool


@dataclass(eq=False)
class Call:
    """One call of a module with images. `slot` is where these lie in (args, kwargs); `flat`: as rows of their pixels."""

    images: torch.Tensor
    slot: Place
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    site: str
    training: bool
    grad: bool
    row: tuple[int, int, int]
    flat: bool = False
    dataset: Any = None
    frame: types.FrameType | None = None
    output: Any = None

    @property
    def evaluating(self) -> bool:
        """Whether nothing is learned from it, as far as the call itself tells; `Seen.learned` has what came after."""
        return not self.training or not self.grad


@dataclass(eq=False)
class Seen:
    """A module that a script calls with images: how often from where, and which functions read each part of its outputs."""

    module: nn.Module
    ordinal: int
    sites: Counter[tuple[str, bool]] = field(default_factory=Counter)
    first: dict[bool, Call] = field(default_factory=dict)
    """The first call while evaluating, and the first of the others."""
    settled: Call | None = None
    """The first call in evaluation mode: the first while evaluating may measure the accuracy of a training step."""
    reads: dict[Place, Counter[str]] = field(default_factory=dict)
    feeds: set[tuple[str, bool]] = field(default_factory=set)
    """Classes of the modules with parameters that take its outputs further, and whether those of a call while evaluating."""
    evaluated: dict[Place, Counter[str]] = field(default_factory=dict)
    """Those of the functions that read what a call while evaluating gave."""
    limits: dict[Place, Counter[Limit]] = field(default_factory=dict)
    """What each part of its outputs was compared with."""
    chosen: dict[Place, dict[str, Chosen]] = field(default_factory=dict)
    """What the script's lines ("path:line") chose a class from, made of each part of its outputs while evaluating."""
    best_compared: dict[Place, set[str]] = field(default_factory=dict)
    """The lines at which the best number was compared with another."""
    beside: dict[str, str] = field(default_factory=dict)
    """Arguments that it was given other values of with other images, by name, and which."""
    latest: Call | None = None
    """The one that gave what is followed of its outputs."""
    last: bool = False
    """Whether the latest call was one while evaluating."""
    learned: set[bool] = field(default_factory=set)
    """Of which kinds the calls were after which an optimizer changed its parameters."""
    initial: dict[str, torch.Tensor] | None = None
    """A copy of its weights as they were before the first call that may train it."""


def tensors_in(value: Any, path: Place = (), depth: int = 0) -> Iterator[tuple[Place, torch.Tensor]]:
    """The tensors in what a call takes or gives, with where they lie."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 3 or value is None or isinstance(value, str | bytes | int | float):
        return
    elif isinstance(value, Mapping):  # transformers' outputs and batches too
        for key, item in value.items():
            yield from tensors_in(item, (*path, key), depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value[:64]):
            yield from tensors_in(item, (*path, index), depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from tensors_in(getattr(value, item.name, None), (*path, f".{item.name}"), depth + 1)


def value_at(value: Any, path: Place) -> Any:
    """What lies there in a nested value."""
    for step in path:
        value = getattr(value, step[1:]) if isinstance(step, str) and step.startswith(".") else value[step]
    return value
