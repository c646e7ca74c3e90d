"""Whether a template says of an image what the application said: equal, and numbers as near as rounding them allows."""

from __future__ import annotations

import json
import re
from typing import Any

from ....runtime.artifact.routes.answer_template import (
    Answered,
    Best,
    BestByName,
    Items,
    Node,
    Object,
    Pick,
    Score,
    Text,
)

# What float32 arithmetic in another order may make of a probability, and of an output in shares of the largest one.
_PROBABILITY, _OUTPUT = 2e-5, 1e-4
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


class Disagreement(Exception):  # noqa: N818 - it is an outcome, with the member's place
    """`place` of the answer holds `said`, and the template gives `filled` there."""

    def __init__(self, place: str, said: Any, filled: Any) -> None:
        super().__init__(f"{place or 'the answer'} is {shown(said)}, where {shown(filled)} was expected")
        self.place = place


def shown(value: Any) -> str:
    """A value as messages show it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def check(node: Node, said: Any, answered: Answered, each: int | None = None, place: str = "") -> None:
    """Raise Disagreement unless the node says of a row of scores what was said."""
    filled = node.fill(answered, each)
    if isinstance(node, Score) and node.style in ("number", "integer"):
        number = isinstance(said, int | float) and not isinstance(said, bool)
        if number and (node.style == "number" or type(said) is int) and near(node, float(said), answered, each):
            return
    elif isinstance(node, Text) or (isinstance(node, Score) and isinstance(said, str)):
        if isinstance(said, str) and _same_text(node, said, answered, each):
            return
    elif isinstance(node, Object) and isinstance(said, dict) and said.keys() == filled.keys():
        for name, inner in node.members:
            check(inner, said[name], answered, each, f"{place}.{name}".lstrip("."))
        return
    elif isinstance(node, Items | Best) and isinstance(said, list) and len(said) == len(filled):
        for number_, value in enumerate(said):
            inner, rank = (node.item, number_) if isinstance(node, Best) else (node.items[number_], each)
            check(inner, value, answered, rank, f"{place}[{number_}]")
        return
    elif isinstance(node, BestByName) and isinstance(said, dict) and said.keys() == filled.keys():
        names = node.table
        for rank in range(node.count):
            name = answered.tables[names][Pick(rank=rank).of(answered, None)]
            check(node.value, said[name], answered, rank, f"{place}.{name}".lstrip("."))
        return
    elif not isinstance(node, Object | Items | Best | BestByName) and type(said) is type(filled) and said == filled:
        return
    raise Disagreement(place, said, filled)


def near(score: Score, said: float, answered: Answered, each: int | None) -> bool:
    """Whether a number is the score, as exact as its decimals and float32 arithmetic let it be."""
    exact = score.exact(answered, each)
    allowed = _OUTPUT * max(1.0, float(abs(answered.row).max())) if score.source == "output" else _PROBABILITY
    rounding = 0.0 if score.decimals is None else 0.5 * 10.0**-score.decimals
    return abs(said - exact) <= rounding + allowed * score.times + 1e-9 * abs(exact)


def _same_text(node: Text | Score, said: str, answered: Answered, each: int | None) -> bool:
    parts = node.parts if isinstance(node, Text) else (node,)
    numbers = [part for part in parts if isinstance(part, Score)]
    pattern = "".join(f"({NUMBER})" if isinstance(part, Score) else re.escape(str(part.fill(answered, each))) for part in parts)
    match = re.fullmatch(pattern, said)
    return match is not None and all(
        near(score, float(text), answered, each) and _as_written(score, text)
        for score, text in zip(numbers, match.groups(), strict=True)
    )


def _as_written(score: Score, text: str) -> bool:
    decimals = len(text.partition(".")[2])
    return score.style != "fixed" or decimals == score.decimals
