"""Live names: what the program after a point still reads, as names or single attributes of names."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ..reading.scopes import NameUse


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


class LiveNames:
    """A set of live names and attributes, with the questions that slicing asks."""

    def __init__(self, items: set[NameUse] | None = None) -> None:
        self.items: set[NameUse] = set(items or ())

    def copy(self) -> LiveNames:
        return LiveNames(self.items)

    def roots(self) -> set[str]:
        return {name for name, _ in self.items}

    def has(self, name: str) -> bool:
        return any(root == name for root, _ in self.items)

    def touches(self, place: NameUse) -> bool:
        """Whether a change at a place is seen by what is live."""
        name, attribute = place
        return self.has(name) if attribute is None else (name, None) in self.items or (name, attribute) in self.items

    def attributes(self, name: str) -> set[str] | None:
        """The attributes of a name that are live, None when all of it is."""
        found = {attribute for root, attribute in self.items if root == name}
        return None if None in found else {attribute for attribute in found if attribute is not None}

    def kill(self, name: str) -> None:
        self.items = {use for use in self.items if use[0] != name}

    def add(self, items: set[NameUse]) -> None:
        self.items |= items
