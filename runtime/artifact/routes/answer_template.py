"""How an application writes its answers: a tree of JSON whose leaves are filled from a model's scores. Torch-free.

    {"prediction": Name(best), "confidence": Score(best, "softmax", times=100, decimals=2), "top": Best(3, {...})}

A template says nothing but this: constants, the name, the index and the score of a class, the name of the file that was sent,
and texts made of those. There are no conditions and no arithmetic, so that whoever reads one knows every answer that it can
give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

Source = Literal["softmax", "sigmoid", "output"]
SOURCES: tuple[Source, ...] = ("softmax", "sigmoid", "output")
"""What a score is: a function of the model's output, or that as it is."""
Style = Literal["number", "integer", "plain", "fixed"]
STYLES: tuple[Style, ...] = ("number", "integer", "plain", "fixed")
"""How a score is written: as a number of JSON, or in a text as `str` or as `f"{score:.2f}"` writes it."""


class Answered:
    """One row of a model's output, and what leaves say of it. `tables` are names of the classes, the labels first."""

    def __init__(self, row: np.ndarray, tables: Sequence[Sequence[str]], file_name: str = "") -> None:
        self.row = np.asarray(row, np.float64).reshape(-1)
        self.tables = tables
        self.file_name = file_name

    @cached_property
    def ranked(self) -> np.ndarray:
        """Indices of the classes, the best first; of equal ones the first comes first, as argmax has it."""
        return np.argsort(-self.row, kind="stable")

    @cached_property
    def softmax(self) -> np.ndarray:
        exponents = np.exp(self.row - self.row.max())
        return exponents / exponents.sum()

    @cached_property
    def sigmoid(self) -> np.ndarray:
        return 1 / (1 + np.exp(-np.clip(self.row, -700, 700)))

    @property
    def output(self) -> np.ndarray:
        return self.row


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The class that a leaf speaks of: that of a rank (0 is the best), that of an index, or with neither the one that the
    `Best` around it is at."""

    rank: int | None = None
    index: int | None = None

    def of(self, answered: Answered, each: int | None) -> int:
        if self.index is not None:
            return self.index
        rank = each if self.rank is None else self.rank
        assert rank is not None, "reading a template sees to that"
        return int(answered.ranked[rank])


@dataclass(frozen=True, kw_only=True)
class Constant:
    """What is in every answer: a text, a number, true, false or null."""

    value: str | int | float | bool | None

    def fill(self, answered: Answered, each: int | None) -> Any:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Name:
    """The name of a class: its label, or what another table of the application calls it."""

    pick: Pick
    table: int = 0

    def fill(self, answered: Answered, each: int | None) -> Any:
        return answered.tables[self.table][self.pick.of(answered, each)]


@dataclass(frozen=True, kw_only=True)
class Index:
    """The index of a class, as a number or as a text."""

    pick: Pick
    text: bool = False

    def fill(self, answered: Answered, each: int | None) -> Any:
        index = self.pick.of(answered, each)
        return str(index) if self.text else index


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of a class, times 1 or 100, with so many decimals; None: as exact as float32 has it."""

    pick: Pick
    source: Source
    times: int = 1
    decimals: int | None = None
    style: Style = "number"

    def exact(self, answered: Answered, each: int | None) -> float:
        """The score before it is rounded."""
        return float(getattr(answered, self.source)[self.pick.of(answered, each)]) * self.times

    def fill(self, answered: Answered, each: int | None) -> Any:
        exact = self.exact(answered, each)
        value = float(np.float32(exact)) if self.decimals is None else round(exact, self.decimals)
        if self.style == "fixed":
            return f"{exact:.{self.decimals}f}"
        if self.style == "integer":
            return round(value)
        return str(value) if self.style == "plain" else value


@dataclass(frozen=True, kw_only=True)
class FileName:
    """The name of the file that was sent."""

    def fill(self, answered: Answered, each: int | None) -> Any:
        return answered.file_name


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where in the `Best` around it a leaf is, counted from `first`."""

    first: int

    def fill(self, answered: Answered, each: int | None) -> Any:
        assert each is not None, "reading a template sees to that"
        return each + self.first


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text of several parts, each filled as a text."""

    parts: tuple[Leaf, ...]

    def fill(self, answered: Answered, each: int | None) -> Any:
        return "".join(str(part.fill(answered, each)) for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Object:
    """An object with these members."""

    members: tuple[tuple[str, Node], ...]

    def fill(self, answered: Answered, each: int | None) -> Any:
        return {name: node.fill(answered, each) for name, node in self.members}


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list of these items."""

    items: tuple[Node, ...]

    def fill(self, answered: Answered, each: int | None) -> Any:
        return [node.fill(answered, each) for node in self.items]


@dataclass(frozen=True, kw_only=True)
class Best:
    """A list with an item for each of the `count` best classes, the best first."""

    count: int
    item: Node

    def fill(self, answered: Answered, each: int | None) -> Any:
        return [self.item.fill(answered, rank) for rank in range(self.count)]


@dataclass(frozen=True, kw_only=True)
class BestByName:
    """An object with a member for each of the `count` best classes, called as a table calls the class."""

    count: int
    value: Node
    table: int = 0

    def fill(self, answered: Answered, each: int | None) -> Any:
        names = answered.tables[self.table]
        return {names[int(answered.ranked[rank])]: self.value.fill(answered, rank) for rank in range(self.count)}


Leaf = Constant | Name | Index | Score | FileName | Position | Text
Node = Leaf | Object | Items | Best | BestByName
LEAVES = (Constant, Name, Index, Score, FileName, Position, Text)
