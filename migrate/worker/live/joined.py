"""A classifier that a script calls in parts: a module with the images, and the next one with what that gives."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ...reading.recipe import Place
from ..recipe import unwrap
from ..rehearsal.places import of_kind
from .seen import value_at

MOST_PARTS = 4
MOST_JOINED = 8  # of a script that gives one body ever new heads, each of which is kept with a copy of its weights


class Joined(nn.Module):  # type: ignore[misc]
    """The parts one after the other. Each but the first takes one tensor, which lies at its place in what the one before gives.

    A part may take it flattened, as [rows, numbers]. The parts have the names by which the script has them, so that a
    checkpoint of the module around them fits.
    """

    def __init__(self, first: nn.Module, then: nn.Module, *, place: Place, flat: bool, names: tuple[str, str]) -> None:
        super().__init__()
        before = first if isinstance(first, Joined) else None
        self._steps: tuple[tuple[str, Place, bool], ...] = before._steps if before is not None else ((names[0], (), False),)
        self._steps = (*self._steps, (names[1], place, flat))
        parts = [*(before.parts() if before is not None else [unwrap(first)]), unwrap(then)]
        for name, part in zip((step[0] for step in self._steps), parts, strict=True):
            self.add_module(name, part)

    def parts(self) -> list[nn.Module]:
        return [self.get_submodule(name) for name, *_ in self._steps]

    def forward(self, images: Any, *args: Any, **named: Any) -> Any:
        """What the last part gives; the first takes all arguments."""
        first, *rest = self.parts()
        made = first(images, *args, **named)
        for part, (_, place, flat) in zip(rest, self._steps[1:], strict=True):
            taken = value_at(made, place)
            made = part(taken.flatten(1) if flat else taken)
        return made


def joined(first: nn.Module, then: nn.Module, *, place: Place, flat: bool, frame: types.FrameType | None) -> Joined:
    """The two as one module, whose class is called like theirs, and its parts as the script calls them."""
    before = first.parts() if isinstance(first, Joined) else [first]
    taken = {"_steps", *vars(nn.Module()), *(name for name, _ in first.named_children() if isinstance(first, Joined))}
    names: list[str] = []
    for part, otherwise in ((before[-1], "first"), (then, "then")):
        known = [name for name in _names(part, frame) if name not in taken and not hasattr(Joined, name)]
        names.append(next(iter(known), f"{otherwise}_{len(taken)}"))
        taken.add(names[-1])
    kind = type("_".join(type(part).__name__ for part in (*before, unwrap(then))), (Joined,), {})
    made: Joined = kind(first, then, place=place, flat=flat, names=(names[0], names[1]))
    return made


def takes(args: Sequence[Any], named: Iterable[str]) -> torch.Tensor | None:
    """The tensor that a module is called with, where it is called with nothing else."""
    alone = len(args) == 1 and not list(named) and isinstance(args[0], torch.Tensor)
    return args[0] if alone else None


def _names(part: nn.Module, frame: types.FrameType | None) -> Iterator[str]:
    """The names of a module in the module around it, among a frame's variables, and in its file."""
    if frame is None:
        return
    around = frame.f_locals.get("self")
    children = dict(around.named_children()) if isinstance(around, nn.Module) else {}
    for names in (children, getattr(around, "__dict__", {}), frame.f_locals, frame.f_globals):
        for name, value in of_kind(names, nn.Module):
            if unwrap(value) is unwrap(part) and name.isidentifier() and name != "self":
                yield name
