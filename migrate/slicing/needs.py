"""What a slice still needs on its way backward: names, or single attributes of names."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ..reading.scopes import Need


@dataclass
class Options:
    """`checkpoints` False leaves out the steps that fill the model with stored weights, `seeds` False those that seed random
    numbers."""

    checkpoints: bool = True
    seeds: bool = True
    data: bool = True
    """False leaves out data sets that are made only to write something into the configuration, such as a number of classes."""
    dropped: list[ast.stmt] = field(default_factory=list)
    """Statements left out because they load a checkpoint or train."""


class Needs:
    """A set of needs with the questions that slicing asks."""

    def __init__(self, items: set[Need] | None = None) -> None:
        self.items: set[Need] = set(items or ())

    def copy(self) -> Needs:
        return Needs(self.items)

    def roots(self) -> set[str]:
        return {name for name, _ in self.items}

    def has(self, name: str) -> bool:
        return any(root == name for root, _ in self.items)

    def touches(self, place: Need) -> bool:
        """Whether a change at a place can be seen through these needs."""
        name, attribute = place
        return self.has(name) if attribute is None else (name, None) in self.items or (name, attribute) in self.items

    def attributes(self, name: str) -> set[str] | None:
        """The attributes of a name that are needed, None when all of it is."""
        found = {attribute for root, attribute in self.items if root == name}
        return None if None in found else {attribute for attribute in found if attribute is not None}

    def kill(self, name: str) -> None:
        self.items = {need for need in self.items if need[0] != name}

    def add(self, items: set[Need]) -> None:
        self.items |= items
