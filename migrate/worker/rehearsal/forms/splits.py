"""Files that say which images are for training and which for testing: by numbers, or by names."""

from __future__ import annotations

import ast
import re
from typing import Any

from .. import hints
from ..stage import Stage

SPLIT = re.compile(
    r"^(train(ing)?|trn|val(id(ation)?)?|dev|eval|test(ing)?|tst|holdout)(_?(idx|ids?|ind(ex|ices)|set|split|files|names|images))?$",
    re.I,
)
COLUMN = re.compile(r"^(data_?)?(split|subset|partition|phase)s?$", re.I)
"""Columns of tables that hold the name of a split."""
ROWS = 16
"""Images of which a list is made, as many as a table has rows; those of a split are among them."""
_BY_NUMBER = ("Subset", "SubsetRandomSampler", "subset")


def stated(stage: Stage) -> list[str]:
    """The names of splits with which the sources compare something, in the order in which they stand there."""
    trees = hints.sources(stage.root, hints.path_of(stage.root, stage.request.script))
    compared = (node for tree in trees for node in hints.nodes(tree) if isinstance(node, ast.Compare))
    values = (side.value for node in compared for side in (node.left, *node.comparators) if isinstance(side, ast.Constant))
    return list(dict.fromkeys(value for value in values if isinstance(value, str) and SPLIT.match(value)))


def named(stage: Stage) -> list[str]:
    """The splits of a table that holds one each: those that the sources state, and of the usual three those they do not."""
    own = stated(stage)
    return [*own, *(usual for usual in ("train", "val", "test") if not any(name[:2] == usual[:2] for name in own))]


def images(stage: Stage, ending: str) -> list[Any]:
    """A split of images by their numbers, or by their names where the sources take none by number."""
    trees = hints.sources(stage.root, hints.path_of(stage.root, stage.request.script))
    said = {getattr(node, "id", getattr(node, "attr", None)) for tree in trees for node in hints.nodes(tree)}
    by_number = not said.isdisjoint(_BY_NUMBER)
    stage.names_images |= not by_number
    return [number if by_number else f"image_{number:04d}{ending}" for number in range(ROWS)]


def wrap_around(stage: Stage, data: Any) -> None:
    """Have the numbers of images that a user's own split names, and a set that was made has not, lead to those that it has; and
    parts of so many images be parts of those that there are."""

    def start(original: Any, self: Any, dataset: Any, indices: Any, *args: Any, **named: Any) -> None:
        count = len(dataset) if hasattr(dataset, "__len__") else 0
        numbers = list(indices)
        plain = all(isinstance(number, int) for number in numbers)
        if count and plain and _made(stage) and max(numbers, default=0) >= count:
            stage.note("data", f"a split of more images than the {count} that stand in was wrapped around")
            numbers = [number % count for number in numbers]
        else:
            numbers = indices
        original(self, dataset, numbers, *args, **named)

    def deal(original: Any, dataset: Any, lengths: Any, *args: Any, **named: Any) -> Any:
        count = len(dataset) if hasattr(dataset, "__len__") else 0
        numbers = list(lengths)
        plain = bool(numbers) and all(isinstance(number, int) and number >= 0 for number in numbers)
        if plain and count >= len(numbers) and sum(numbers) not in (0, count) and _made(stage):
            stage.note("data", f"parts of {sum(numbers)} images in all became as large parts of the {count} that stand in")
            lengths = _in_proportion(numbers, count)
        return original(dataset, lengths, *args, **named)

    stage.wrap(data.Subset, "__init__", start)
    for module in (data, data.dataset):
        stage.wrap(module, "random_split", deal)


def _made(stage: Stage) -> bool:
    return any(item.edge == "data" for item in stage.standins)


def _in_proportion(numbers: list[int], count: int) -> list[int]:
    """So many in all, as near to the shares of `numbers` as whole numbers are, and none empty that was not."""
    total = sum(numbers)
    dealt = [max(number * count // total, int(number > 0)) for number in numbers]
    while (left := count - sum(dealt)) != 0:
        most = max(range(len(dealt)), key=lambda index: numbers[index] if left > 0 else dealt[index])
        dealt[most] += left if left > 0 else -1
    return dealt
