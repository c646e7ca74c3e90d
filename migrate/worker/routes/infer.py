"""The template of an application's answers, from what it answered to images whose scores are known.

Every leaf is tried as each thing that a template can say; what fits all images is taken where it is one thing alone. Where two
fit, as where every image is of one class, nothing is guessed: that is said, with the member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.artifact.routes.answer_template import (
    SOURCES,
    Answered,
    Best,
    BestByName,
    Constant,
    FileName,
    Index,
    Items,
    Leaf,
    Name,
    Node,
    Object,
    Pick,
    Position,
    Score,
    Style,
    Text,
)
from .agree import NUMBER, Disagreement, check, near, shown

_MOST_RANKS = 10
_DECIMALS = 8
"""With more, a number was not rounded."""
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.])(?:{NUMBER})")  # not that of "v1"


class NoTemplateError(Exception):
    """Why no template says what was answered, with the member in the words of the answer."""


@dataclass(frozen=True)
class Value:
    """What one answer holds at a place: of which image, and within a list of the best classes, at which rank."""

    said: Any
    answered: Answered
    each: int | None = None


def infer(said: Sequence[Any], answered: Sequence[Answered]) -> Node:
    """The template of the answers to images with these scores. Raises NoTemplateError."""
    return _node([Value(*pair) for pair in zip(said, answered, strict=True)], "")


def _node(values: Sequence[Value], place: str) -> Node:
    kinds = {type(value.said) for value in values}
    if kinds == {dict}:
        return _object(values, place)
    if kinds == {list}:
        return _list(values, place)
    if kinds & {dict, list}:
        raise NoTemplateError(f"{_named(place)} is not always of one kind")
    return _leaf(values, place)


def _object(values: Sequence[Value], place: str) -> Node:
    names = list(values[0].said)
    if all(list_equal(value.said, names) for value in values):
        members = [
            (
                name,
                _node([Value(value.said[name], value.answered, value.each) for value in values], f"{place}.{name}".lstrip(".")),
            )
            for name in names
        ]
        return Object(members=tuple(members))
    count = len(names)
    for table in range(len(values[0].answered.tables)):
        if values[0].each is None and all(_names_best(value, count, table) for value in values):
            inner = [
                Value(value.said[_name(value.answered, rank, table)], value.answered, rank)
                for value in values
                for rank in range(count)
            ]
            return BestByName(count=count, value=_node(inner, f"{place}.*".lstrip(".")), table=table)
    other = next(value.said for value in values if not list_equal(value.said, names))
    raise NoTemplateError(
        f"the members of {_named(place)} differ ({shown(names)}, {shown(list(other))}) and are not the labels of the best "
        "classes"
    )


def list_equal(said: dict[str, Any], names: Sequence[str]) -> bool:
    """Whether an object has these members; their order says nothing."""
    return said.keys() == set(names)


def _names_best(value: Value, count: int, table: int) -> bool:
    best = {_name(value.answered, rank, table) for rank in range(min(count, len(value.answered.row)))}
    return len(best) == count and value.said.keys() == best


def _name(answered: Answered, rank: int, table: int) -> str:
    names = answered.tables[table]
    return names[Pick(rank=rank).of(answered, None)] if names else ""


def _list(values: Sequence[Value], place: str) -> Node:
    lengths = {len(value.said) for value in values}
    if len(lengths) != 1:
        raise NoTemplateError(
            f"{_named(place)} is a list of {min(lengths)} to {max(lengths)} items: its length is not always the same"
        )
    (count,) = lengths
    if values[0].each is None and 1 < count <= len(values[0].answered.row):
        items = [Value(item, value.answered, rank) for value in values for rank, item in enumerate(value.said)]
        try:
            return Best(count=count, item=_node(items, f"{place}[*]"))
        except NoTemplateError:
            pass  # no list of the best classes: each item may be something else
    return Items(
        items=tuple(
            _node([Value(value.said[index], value.answered, value.each) for value in values], f"{place}[{index}]")
            for index in range(count)
        )
    )


# -- leaves


def _leaf(values: Sequence[Value], place: str) -> Leaf:
    found = [leaf for leaf in _candidates(values) if _fits(leaf, values)]
    if all(isinstance(value.said, str) for value in values) and (not found or isinstance(found[0], Constant)):
        found += [leaf for leaf in _texts(values) if _fits(leaf, values)]
    if not found:
        raise NoTemplateError(_nothing_fits(values, place))
    if len(found) > 1:
        raise NoTemplateError(
            f"{_named(place)} is {shown(values[0].said)} for every image that was tried, or nearly so: whether it is "
            f"{_told(found[0])} or {_told(found[1])} cannot be told"
        )
    return found[0]


def _fits(leaf: Leaf, values: Sequence[Value]) -> bool:
    try:
        for value in values:
            check(leaf, value.said, value.answered, value.each)
    except (Disagreement, IndexError):
        return False
    return True


def _candidates(values: Sequence[Value]) -> Iterator[Leaf]:
    first = values[0].said
    if all(type(value.said) is type(first) and value.said == first for value in values):
        yield Constant(value=first)
    if isinstance(first, bool) or first is None:
        return
    picks = list(_picks(values))
    if isinstance(first, str):
        yield from _distinct_names(values, picks)
        yield FileName()
        yield from (Index(pick=pick, text=True) for pick in picks)
    elif all(type(value.said) is int for value in values):
        yield from (Index(pick=pick) for pick in picks)
        if values[0].each is not None:
            yield from (Position(first=number) for number in (0, 1))
    if all(isinstance(value.said, int | float) and not isinstance(value.said, bool) for value in values):
        yield from _scores(values, picks, [value.said for value in values])


def _picks(values: Sequence[Value]) -> Iterator[Pick]:
    """The classes that a leaf may speak of, which are not the same one for every image."""
    if values[0].each is not None:
        yield Pick()
        return
    classes = len(values[0].answered.row)
    yield from (Pick(rank=rank) for rank in range(min(_MOST_RANKS, classes)))


def _distinct_names(values: Sequence[Value], picks: Sequence[Pick]) -> Iterator[Name]:
    seen: list[Sequence[str]] = []
    for table, names in enumerate(values[0].answered.tables):
        if names and names not in seen:
            seen.append(names)
            yield from (Name(pick=pick, table=table) for pick in picks)


def _scores(
    values: Sequence[Value], picks: Sequence[Pick], numbers: Sequence[Any], *, styles: Sequence[Style] = ("number", "integer")
) -> Iterator[Score]:
    """Scores that the numbers, or texts of numbers, may be: of a rank or, outside of lists, of a class; each thing once."""
    whole = all(isinstance(number, int) for number in numbers)
    decimals = max(_decimals(number) for number in numbers)
    for source in SOURCES:
        for times in (1, 100):
            places = decimals if decimals <= _DECIMALS else None
            if decimals == 0 and times == 1:
                if whole or styles[0] != "number":
                    continue  # a score as 0 or 1 says nothing; it is a constant
                places = None  # 1.0 is one that was not rounded
            first = values[0]
            fixed = [] if first.each is not None else _near_classes(first.answered, source, times, places, float(numbers[0]))
            for pick in (*picks, *fixed):
                style: Style = "integer" if whole and "integer" in styles else styles[0]
                score = Score(pick=pick, source=source, times=times, decimals=places, style=style)
                if all(
                    near(score, float(number), value.answered, value.each)
                    for number, value in zip(numbers, values, strict=True)
                ):
                    yield score


def _near_classes(answered: Answered, source: str, times: int, places: int | None, number: float) -> list[Pick]:
    """The classes whose score may be a number of the first image: of thousands, few are to be looked at closely."""
    slack = 1e-3 * times * max(1.0, float(abs(answered.row).max())) + (0.0 if places is None else 10.0**-places)
    close = np.flatnonzero(abs(getattr(answered, source) * times - number) <= slack)
    return [Pick(index=int(index)) for index in close]


def _decimals(number: float | str) -> int:
    text = number if isinstance(number, str) else repr(number)
    if "e" in text or "E" in text:
        return _DECIMALS + 1
    digits = text.partition(".")[2]
    return 0 if not isinstance(number, str) and digits == "0" else len(digits)


def _texts(values: Sequence[Value]) -> Iterator[Text]:
    """Texts with the name of a class in them, with numbers, or with both."""
    picks = list(_picks(values))
    for name in (*_distinct_names(values, picks), FileName(), None):
        split = [_split(value, name) for value in values]
        if any(one is None for one in split):
            continue
        shape = [type(piece) is float for piece in _pieces(split[0])]
        if all([type(piece) is float for piece in _pieces(one)] == shape for one in split):
            yield from _of_columns(values, [_pieces(one) for one in split], name)
            return


def _split(value: Value, name: Name | FileName | None) -> tuple[list[Any], ...] | None:
    """A text as its constant texts, the name where it stands first (None), and its numbers, as (text, number)."""
    text = value.said
    if name is None:
        return (_numbers(text),)
    written = str(name.fill(value.answered, value.each))
    if not written or written not in text:
        return None
    before, _, after = text.partition(written)
    return (_numbers(before), _numbers(after))


def _numbers(text: str) -> list[Any]:
    pieces: list[Any] = []
    end = 0
    for match in _NUMBER.finditer(text):
        pieces += [text[end : match.start()], (match[0],)]
        end = match.end()
    return [*pieces, text[end:]]


def _pieces(split: tuple[list[Any], ...] | None) -> list[Any]:
    """Constant texts and numbers in turn, with None where the name stands."""
    assert split is not None
    pieces: list[Any] = []
    for part in split:
        pieces += [*([None] if pieces else []), *part]
    return pieces


def _of_columns(values: Sequence[Value], rows: Sequence[list[Any]], name: Name | FileName | None) -> Iterator[Text]:
    """Texts of the columns, each of which is a constant, the name, or a number that is a score or an index."""
    if len({len(row) for row in rows}) != 1:
        return
    parts: list[Leaf] = []
    for column in zip(*rows, strict=True):
        part = _part(values, column, name)
        if part is None:
            return
        parts.append(part)
    plain = [part for part in parts if part != Constant(value="")]
    if any(not isinstance(part, Constant) for part in plain):
        yield Text(parts=tuple(plain))


def _part(values: Sequence[Value], column: Sequence[Any], name: Name | FileName | None) -> Leaf | None:
    if column[0] is None:
        return name if all(item is None for item in column) else None
    if not all(isinstance(item, tuple) for item in column):
        return Constant(value=column[0]) if all(item == column[0] for item in column) else None
    texts = [item[0] for item in column]
    picks = list(_picks(values))
    indices: list[Leaf] = [Index(pick=pick, text=True) for pick in picks] if all(text.isdigit() for text in texts) else []
    written = [Value(text, value.answered, value.each) for text, value in zip(texts, values, strict=True)]
    found = [leaf for leaf in indices if _fits(leaf, written)]
    style: Style = "fixed" if len({_decimals(text) for text in texts}) == 1 and _decimals(texts[0]) <= _DECIMALS else "plain"
    found += [leaf for leaf in _scores(values, picks, texts, styles=(style,)) if _fits(leaf, written)]
    if all(text == texts[0] for text in texts):
        found.insert(0, Constant(value=texts[0]))
        if len(found) > 1:
            raise NoTemplateError(
                f"the text {shown(values[0].said)} holds {texts[0]} for every image that was tried: whether it is a constant "
                f"or {_told(found[1])} cannot be told"
            )
    return found[0] if len(found) == 1 else None


# -- words


def _nothing_fits(values: Sequence[Value], place: str) -> str:
    one, other = values[0].said, next((value.said for value in values if value.said != values[0].said), values[0].said)
    kind = (
        "a text that is made of no label and no score"
        if isinstance(one, str)
        else "neither a score nor an index of the model's"
    )
    return f"{_named(place)} ({shown(one)}, {shown(other)}) is {kind}"


def _named(place: str) -> str:
    return f"the member {place!r}" if place else "the answer"


def _told(leaf: Leaf) -> str:
    if isinstance(leaf, Constant):
        return "a constant"
    if isinstance(leaf, Score):
        return f"a score ({leaf.source} of {_whose(leaf.pick)})"
    if isinstance(leaf, Name | Index):
        return f"the {'name' if isinstance(leaf, Name) else 'index'} of {_whose(leaf.pick)}"
    words: dict[type[Any], str] = {FileName: "the file's name", Position: "the place in the list"}
    return words.get(type(leaf), "a text of them")


def _whose(pick: Pick) -> str:
    if pick.index is not None:
        return f"class {pick.index}"
    return "each class" if pick.rank is None else "the best class" if pick.rank == 0 else f"class {pick.rank + 1} of the best"


def varied(answered: Sequence[Answered]) -> int:
    """How many classes are the best one of some image."""
    return len({int(np.argmax(one.row)) for one in answered})
