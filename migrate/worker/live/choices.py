"""Does a script choose by what its model gives, or by what it makes of that? The package can only answer by the former."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_SMALLEST = frozenset({"argmin", "min"})
_CHOOSING = frozenset({"argmax", "topk", "sort", "argsort"}) | _SMALLEST
_LEAVING = frozenset({"numpy", "tolist", "__array__"})
"""What is done with the numbers afterwards, nobody sees."""
_LEAST = 2  # numbers of which one can be chosen
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
_ROUNDINGS = 8  # of a half-precision output, in a softmax of it
_ROUNDED = 0.005  # scores that are rounded to two places are no others
_MATRIX = 2  # dimensions
_FEW = 64  # rows that are looked for in any order
_Near = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Chosen:
    """What a line of the script chose from, in all its calls: `rows` of numbers. In `other` of them the largest stands
    elsewhere than in what the model gave; `scores` are the script's best and the package's where those are others; `form` says
    what else was chosen from, in words."""

    rows: int = 0
    other: int = 0
    scores: tuple[float, float] | None = None
    form: str = ""

    def add(self, other: Chosen) -> None:
        """Add what another call of the same line chose from."""
        self.rows, self.other = self.rows + other.rows, self.other + other.other
        self.form = self.form or other.form
        if other.scores is not None and (self.scores is None or _gap(other.scores) > _gap(self.scores)):
            self.scores = other.scores


def in_words(chosen: Mapping[str, Chosen], compared: Collection[str]) -> dict[str, str]:
    """By line, what the script does there to say another class or score than the largest of what its model gives; `compared`
    are the lines at which its best score is held against a number."""
    said = {}
    for where, made in chosen.items():
        if made.form:
            said[where] = f"the class is chosen from {made.form}"
        elif made.other:
            many = f"{made.other} of {made.rows} images"
            said[where] = f"what the class is chosen from was changed after the model: another one is the largest for {many}"
        elif made.scores is not None:
            ours, theirs = made.scores
            said[where] = f"the scores are others than the package's: {ours:.3g} where that says {theirs:.3g}"
    for where in sorted(compared):
        said.setdefault(
            where, "the best score is held against a number, and the package names the best class whatever its score"
        )
    return said


def note_choice(
    chosen: Chosen, name: str, value: torch.Tensor, given: torch.Tensor, args: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Add what one call of torch's function `name` chooses from `value`, which was made of `given`, a model's output."""
    if not _is_choice(name, value, given, args, named):
        return
    width, count = given.shape[1], value.shape[-1]
    if value.dim() == 1 and len(given) > 1 and count == len(given):
        return  # one number of each image
    if count != width:
        if name not in _LEAVING:
            chosen.rows += value.numel() // count
            chosen.form = f"{count} numbers, where the model gives {width}"
        return
    near = _near(max(torch.finfo(value.dtype).eps, torch.finfo(given.dtype).eps))
    rows, given = value.detach().double().cpu().reshape(-1, count), given.detach().double().cpu()
    chosen.rows += len(rows)
    if name in _SMALLEST or _ascending(name, args, named):
        chosen.form = "the smallest number, where the package takes the largest"
        return
    shares = given if _are_shares(given, near) else given.softmax(1)
    logarithms = [given.log_softmax(1), *([given.log()] if bool((given > 0).all()) else ())]
    if _all_among(rows, [given, shares, *logarithms], near):
        return
    if _all_among(rows, [given.sigmoid()], near):
        chosen.scores = _apart(rows, shares)
    elif len(rows) == len(given):
        chosen.other += int((rows.argmax(1) != given.argmax(1)).sum())
        best = rows.max(1).values  # of what is scaled so that it is one, nobody shows it
        if _are_shares(rows, near) or bool((rows >= 0).all() and (best <= 1).all() and (best < 1).any()):
            chosen.scores = _apart(rows, shares)
    elif len(rows) < min(len(given), _FEW):
        chosen.form = f"what it makes of {len(given)} rows of the model's at once"


def _gap(scores: tuple[float, float]) -> float:
    return abs(scores[0] - scores[1])


def _is_choice(name: str, value: torch.Tensor, given: torch.Tensor, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether one of the last dimension's numbers is chosen, or all of them leave torch, and the model gives rows of such."""
    if name not in _CHOOSING | _LEAVING or given.dim() != _MATRIX or value.dim() not in (1, _MATRIX):
        return False
    if not value.is_floating_point() or value.is_meta or not value.numel() or min(value.shape[-1], given.shape[1]) < _LEAST:
        return False
    position = int(name == "topk")  # value.topk(k, dim), value.argmax(dim)
    axis = named.get("dim", args[position] if len(args) > position and name not in _LEAVING else None)
    if name == "min" and not isinstance(axis, int):
        return False  # of two tensors, or of all numbers
    if not isinstance(axis, int) or isinstance(axis, bool):
        return axis is None
    return axis % value.dim() == value.dim() - 1


def _ascending(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    position = 2  # value.topk(k, dim, largest)
    return name == "topk" and not named.get("largest", args[position] if len(args) > position else True)


def _near(eps: float) -> _Near:
    """Equality but for rounding to numbers of a precision."""

    def near(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.isclose(one, other, rtol=max(_RELATIVE, _ROUNDINGS * eps), atol=max(_ABSOLUTE, eps), equal_nan=True)

    return near


def _are_shares(rows: torch.Tensor, near: _Near) -> bool:
    return bool((rows >= 0).all() and near(rows.sum(1), rows.new_ones(len(rows))).all())


def _all_among(rows: torch.Tensor, forms: Sequence[torch.Tensor], near: _Near) -> bool:
    """Whether one of the forms has each of the rows."""
    if any(form.shape == rows.shape and near(form, rows).all() for form in forms):
        return True
    return len(rows) <= _FEW and any(all(near(form, row).all(1).any() for row in rows) for form in forms)


def _apart(rows: torch.Tensor, shares: torch.Tensor) -> tuple[float, float] | None:
    """The best score of the row whose best scores are furthest apart, in both."""
    if len(rows) != len(shares):
        return None
    ours, theirs = rows.max(1).values, shares.max(1).values
    worst = int((ours - theirs).abs().argmax())
    scores = float(ours[worst]), float(theirs[worst])
    return scores if _gap(scores) > _ROUNDED else None
