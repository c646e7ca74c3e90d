"""Answer templates as JSON. Whoever wrote a package may be hostile: what is read is bounded, and every reference in it leads
somewhere.

    {"is": "object", "members": [["label", {"is": "name", "pick": {"rank": 0}, "table": 0}]]}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from .answer_template import (
    LEAVES,
    SOURCES,
    STYLES,
    Best,
    BestByName,
    Constant,
    FileName,
    Index,
    Items,
    Name,
    Node,
    Object,
    Pick,
    Position,
    Score,
    Text,
)

MOST_NODES = 5_000
MOST_LEAVES = 5_000
"""That one answer may have: those within a list of the best classes count as often as it has items."""
MOST_DEPTH = 16
MOST_CHARACTERS = 1_000
MOST_BEST = 1_000
MOST_DECIMALS = 12

KINDS: dict[str, type[Any]] = {
    "constant": Constant, "name": Name, "index": Index, "score": Score, "file name": FileName, "position": Position,
    "text": Text, "object": Object, "items": Items, "best": Best, "best by name": BestByName,
}  # fmt: skip
_WORDS = {kind: word for word, kind in KINDS.items()}


def template_to_json(node: Node) -> dict[str, Any]:
    """What `template_from_json` reads."""
    return {"is": _WORDS[type(node)], **{item.name: _plain(getattr(node, item.name)) for item in fields(node)}}


def _plain(value: Any) -> Any:
    if isinstance(value, Pick):
        return {name: number for name, number in (("rank", value.rank), ("index", value.index)) if number is not None}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return template_to_json(value) if type(value) in _WORDS else value


def template_from_json(data: Any, *, classes: int, tables: int, labeled: bool) -> Node:
    """The template of a model with so many classes, which labels (table 0) and so many other tables name. Raises ValueError
    saying what is wrong with it."""
    return _Reader(classes, tables, 0 if labeled else 1).read(data)


class _Reader:
    def __init__(self, classes: int, tables: int, first_table: int) -> None:
        self._classes, self._tables, self._first_table = classes, tables, first_table
        self._nodes = self._leaves = 0

    def read(self, data: Any) -> Node:
        return self._node(data, 0, 1, each=False)

    def _node(self, data: Any, depth: int, times: int, *, each: bool, leaf: bool = False) -> Any:
        """A node that stands in the answer so many `times`; `each` says that a list of the best classes is around it."""
        if not isinstance(data, Mapping) or not isinstance(word := data.get("is"), str) or word not in KINDS:
            raise ValueError(f'a part of a template must be an object whose "is" is one of {", ".join(KINDS)}')
        kind = KINDS[word]
        self._nodes += 1
        self._leaves += times
        if self._nodes > MOST_NODES or self._leaves > MOST_LEAVES or depth > MOST_DEPTH:
            raise ValueError(
                f"a template may have {MOST_NODES:,} parts, {MOST_DEPTH} levels, and {MOST_LEAVES:,} values in an answer"
            )
        if leaf and (kind not in LEAVES or kind is Text):
            raise ValueError(f"a text of a template cannot hold {word!r}")
        names = {item.name for item in fields(kind)}
        if set(data) != {"is", *names}:
            raise ValueError(f"{word!r} of a template must have {', '.join(sorted(names)) or 'nothing else'}")

        def inner(part: Any, *, count: int = 1, in_text: bool = False) -> Any:
            return self._node(
                part, depth + 1, times * count, each=each or (count > 0 and kind in (Best, BestByName)), leaf=in_text
            )

        readers: dict[str, Callable[[Any], Any]] = {
            "value": inner if kind is BestByName else self._constant,
            "pick": lambda value: self._pick(value, each),
            "table": lambda value: self._number(value, "table", self._tables, least=self._first_table),
            "text": self._flag,
            "source": lambda value: self._word(value, SOURCES),
            "style": lambda value: self._word(value, STYLES),
            "times": self._times,
            "decimals": lambda value: None if value is None else self._number(value, "decimals", MOST_DECIMALS),
            "first": lambda value: self._number(value, "first", 1),
            "count": lambda value: self._number(value, "count", min(MOST_BEST, self._classes), least=1),
            "parts": lambda value: tuple(inner(part, in_text=True) for part in self._list(value)),
            "members": lambda value: self._members(value, inner),
            "items": lambda value: tuple(inner(part) for part in self._list(value)),
            "item": inner,
        }
        if kind in (Best, BestByName):
            if each:
                raise ValueError("a list of the best classes cannot stand in another one")
            count = readers["count"](data["count"])
            readers["item"] = readers["value"] = lambda part: inner(part, count=count)
        if kind is Position and not each:
            raise ValueError("a position stands in a list of the best classes only")
        made = kind(**{name: readers[name](data[name]) for name in names})
        if isinstance(made, Score) and (made.style == "fixed") and made.decimals is None:
            raise ValueError("a score that is written with fixed decimals must say how many")
        return made

    def _pick(self, value: Any, each: bool) -> Pick:
        if not isinstance(value, Mapping) or not set(value) <= {"rank", "index"} or len(value) > 1 or not (value or each):
            raise ValueError("a class of a template must be that of a rank or of an index")
        return Pick(**{name: self._number(number, name, self._classes - 1) for name, number in value.items()})

    def _members(self, value: Any, inner: Callable[[Any], Any]) -> tuple[tuple[str, Any], ...]:
        pairs = self._list(value)
        if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
            raise ValueError("the members of an object of a template must be pairs of a name and a part")
        names = [self._constant(name) for name, _ in pairs]
        if len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError("the members of an object of a template must have different names")
        return tuple((name, inner(part)) for name, (_, part) in zip(names, pairs, strict=True))

    @staticmethod
    def _list(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > MOST_NODES:
            raise ValueError(f"a list of a template's parts must be one of {MOST_NODES:,} at most")
        return value

    @staticmethod
    def _constant(value: Any) -> Any:
        if isinstance(value, str) and len(value) > MOST_CHARACTERS:
            raise ValueError(f"a text of a template may have {MOST_CHARACTERS:,} characters")
        small = not isinstance(value, int | float) or (abs(value) < 1e300 and math.isfinite(value))
        if not isinstance(value, str | int | float | bool | None) or not small:
            raise ValueError("a constant of a template must be a text, a number, true, false or null")
        return value

    @staticmethod
    def _number(value: Any, what: str, most: int, *, least: int = 0) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{what} of a template must be from {least} to {most}, got {str(value)[:50]}")
        return value

    @staticmethod
    def _flag(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("text of a template's index must be true or false")
        return value

    @staticmethod
    def _times(value: Any) -> int:
        if type(value) is not int or value not in (1, 100):
            raise ValueError("times of a template must be 1 or 100")
        return value

    @staticmethod
    def _word(value: Any, known: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{str(value)[:50]!r} of a template is none of {', '.join(known)}")
        return value
