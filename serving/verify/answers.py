"""What a JSON answer says of an image: class scores, in whichever of the usual shapes they come.

    {"predictions": [{"label": "cat", "probability": 0.9}, ...]}      a list of classes with their values
    {"cat": 0.9, "dog": 0.1}                                          values by label
    {"probabilities": [0.9, 0.1]}, [[0.9, 0.1]]                       a value for every class, in the model's order
    {"labels": ["cat", "dog"], "scores": [0.9, 0.1]}, [["cat", 0.9]]  classes beside values
    {"class_id": 3, "class_name": "cat"}, "cat"                       one class

Of several readings the one that says most is taken. What names a class is known by the package's labels, not by its key.
"""

from __future__ import annotations

import collections
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import HeadraceError
from ..protocol.json_limits import parse_json

PROBABILITY, SCORE = "probability", "score"

_LARGEST = 10**300
_BLANK = re.compile(r"[\s_\-]+")
_PLAIN_NUMBER = re.compile(r"(?:class|label)?[ _]?(\d{1,6})", re.IGNORECASE)
_OF_BOTH = frozenset(("class", "label", "prediction", "predicted_class", "category"))
_INDEX_KEYS = _OF_BOTH | {"index", "idx", "class_id", "class_index", "class_idx", "label_id", "category_id", "argmax", "result"}
_LABEL_KEYS = _OF_BOTH | {"class_name", "classname", "name", "predicted_label", "tag"}
# What such keys hold may look like a class and is none; "id" is one where nothing else is.
_OTHER_KEYS = frozenset(("id", "model", "model_name", "model_version", "request_id", "status", "time", "version"))
_LIST_KEYS = frozenset(("", "data", "output", "outputs", "prediction", "predictions", "result", "results"))
_VALUE_KEYS = ("probability", "prob", "confidence", "conf", "score", "value", "logit", "likelihood", "percentage", "p")
_OF_PROBABILITIES = ("prob", "conf", "likelihood", "percent", "softmax")


class UnreadableError(Exception):
    """An answer that says nothing of the package's classes."""


@dataclass(frozen=True)
class Vocabulary:
    """The package's classes: how many there are, and their labels if it has any. Two classes may have one label, as ImageNet's
    cranes do."""

    count: int
    labels: tuple[str, ...] = ()

    def named(self, value: Any) -> int | None:
        """The class of a label; None for what is none."""
        if not isinstance(value, str):
            return None
        if self.labels:
            return self._numbers.get(_plain(value))
        found = _PLAIN_NUMBER.fullmatch(value.strip())
        return self.numbered(int(found[1])) if found else None

    def numbered(self, value: Any) -> int | None:
        """The class of a number, which may be text; None for what is none."""
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 8:
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self.count else None

    def shared(self, number: int) -> bool:
        """Whether its label is another class's, too."""
        return bool(self.labels) and number in self._shared

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for number, label in enumerate(self.labels):
            found.setdefault(_plain(label), number)
        return found

    @functools.cached_property
    def _shared(self) -> frozenset[int]:
        counts = collections.Counter(map(_plain, self.labels))
        return frozenset(number for number, label in enumerate(self.labels) if counts[_plain(label)] > 1)


@dataclass(frozen=True, eq=False)
class Row:
    """What was said of one image: float64 `values` [classes], NaN where nothing was, and the class named `first`.

    Where labels came with numbers beside them, `by_number` and `number` are the same by those. `kind` is what the values are
    called ("" where they have no name), `unknown` the labels that the package does not have, `decimals` the digits after the
    point; `outputs` are the tensors of an answer that has several. Values that are no numbers are not `finite`. `first` is None
    where what is named is unknown, or has the label of several classes. A list that might be anything is `doubtful`.
    """

    values: np.ndarray
    first: int | None
    by_number: np.ndarray | None = None
    number: int | None = None
    kind: str = ""
    unknown: tuple[str, ...] = ()
    finite: bool = True
    doubtful: bool = False
    decimals: int = 17
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass
class _Class:
    """One class that an answer names."""

    label: int | None = None
    number: int | None = None
    value: float | None = None
    unknown: str = ""
    kind: str = ""
    shared: bool = False


def read_answer(body: bytes, vocabulary: Vocabulary) -> Row:
    """What an answer's body says. Raises UnreadableError with the reason and how the body begins."""
    if not body.strip():
        raise UnreadableError("the answer is empty")
    try:
        content = parse_json(body, max_values=1 << 20)
    except HeadraceError:
        text = body.strip()[:200].decode("utf-8", "replace")
        if vocabulary.labels and vocabulary.named(text) is not None:  # a label and nothing around it
            return next(_row([_class({"label": text}, vocabulary)], vocabulary))
        kind = "HTML" if body.lstrip()[:1] == b"<" else "no JSON"
        raise UnreadableError(f"the answer is {kind}: {beginning(body)}") from None
    readings = [reading for part in _parts(content) for reading in _readings(part, vocabulary)]
    if not readings:
        what = "no class of the package" if vocabulary.labels else f"no class number below {vocabulary.count}"
        raise UnreadableError(f"the answer names {what}: {beginning(body)}")
    best = max(readings, key=_said)  # of equal ones the outermost
    if not best.finite:
        raise UnreadableError(f"the answer holds NaN or infinity: {beginning(body)}")
    return best


def from_scores(scores: Sequence[Any] | np.ndarray, kind: str = "") -> Row:
    """The row of a value for every class."""
    values: np.ndarray = np.asarray(scores, np.float64).reshape(-1)
    finite = bool(np.isfinite(values).all())
    first = int(values.argmax()) if finite else None
    return Row(values, first, kind=kind, finite=finite, decimals=_decimals(values) if finite else 17)


def beginning(body: bytes) -> str:
    """How a body begins, for messages."""
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return repr(text[:120] + ("..." if len(text) > 120 or len(body) > 400 else ""))


def _parts(content: Any) -> Iterator[tuple[Any, str]]:
    """Every value of a document with the nearest key above it, the outer ones first. Its depth is bounded by the reader."""
    pending: list[tuple[Any, str]] = [(content, "")]
    while pending:
        value, key = pending.pop(0)
        yield value, key
        if isinstance(value, dict):
            pending += [(inner, str(name)) for name, inner in list(value.items())[:1000]]
        elif isinstance(value, list):
            pending += [(inner, key) for inner in value[:1000] if isinstance(inner, dict | list)]


def _readings(part: tuple[Any, str], vocabulary: Vocabulary) -> Iterator[Row]:
    value, key = part
    if isinstance(value, dict):
        yield from _of_object(value, key, vocabulary)
    elif isinstance(value, list) and value:
        if all(map(_is_number, value)):
            if len(value) == vocabulary.count > 1:
                row = from_scores([float(one) for one in value], kind=_kind(key))
                yield row if row.kind or key.lower() in _LIST_KEYS else replace(row, doubtful=True)
        elif all(isinstance(one, dict) for one in value):
            yield from _row([_class(one, vocabulary) for one in value], vocabulary)
        elif all(isinstance(one, list) and len(one) == 2 and _is_number(one[1]) for one in value):
            yield from _beside([one[0] for one in value], [one[1] for one in value], key, vocabulary)
    elif (
        isinstance(value, str)
        and key.lower() not in _OTHER_KEYS
        and (vocabulary.named(value) is not None or (key in _LABEL_KEYS and vocabulary.labels))
    ):
        yield from _row([_class({"label": value}, vocabulary)], vocabulary)
    elif key in _INDEX_KEYS and vocabulary.numbered(value) is not None:
        yield from _row([_Class(number=vocabulary.numbered(value))], vocabulary)


def _of_object(value: dict[str, Any], key: str, vocabulary: Vocabulary) -> Iterator[Row]:
    yield from _row([_class(value, vocabulary)], vocabulary)
    numbers = {name: one for name, one in value.items() if _is_number(one)}
    if sum(vocabulary.named(name) is not None for name in numbers) >= min(2, vocabulary.count):
        yield from _beside(list(numbers), list(numbers.values()), key, vocabulary)
    lists = {name: one for name, one in value.items() if isinstance(one, list) and one}
    for name, values in lists.items():
        if all(map(_is_number, values)) and _kind(name):
            for other, labels in lists.items():
                if other != name and len(labels) == len(values) and _class_of(labels[0], vocabulary) is not None:
                    yield from _beside(labels, values, name, vocabulary)


def _beside(labels: Sequence[Any], values: Sequence[Any], key: str, vocabulary: Vocabulary) -> Iterator[Row]:
    classes = []
    for label, value in zip(labels, values, strict=True):
        one = _class({"label": label}, vocabulary)
        one.value, one.kind = float(value), _kind(key)
        classes.append(one)
    yield from _row(classes, vocabulary)


def _class(value: Mapping[str, Any], vocabulary: Vocabulary) -> _Class:
    """What an object says of one class: who it is by its values, how likely by its key."""
    found = _Class()
    for name, one in sorted(value.items(), key=lambda item: item[0].lower() not in _LABEL_KEYS):
        key = name.lower()
        if key not in _OTHER_KEYS and (label := vocabulary.named(one)) is not None:
            found.label = label if found.label is None else found.label
        elif isinstance(one, str) and key in _LABEL_KEYS and vocabulary.labels and vocabulary.numbered(one) is None:
            found.unknown = found.unknown or one[:80]
        elif key in _INDEX_KEYS and (number := vocabulary.numbered(one)) is not None:
            found.number = number
    if found.label is None and found.number is None:
        found.number = vocabulary.numbered(value.get("id"))
    if found.label is not None and vocabulary.shared(found.label):
        same = found.number is not None and _plain(vocabulary.labels[found.number]) == _plain(vocabulary.labels[found.label])
        found.label, found.shared = (found.number, False) if same else (found.label, True)
    for key in _VALUE_KEYS:
        for name, one in value.items():
            if name.lower().startswith(key) and _is_number(one) and found.value is None:
                found.value, found.kind = float(one), _kind(name)
    return found


def _class_of(value: Any, vocabulary: Vocabulary) -> int | None:
    named = vocabulary.named(value)
    return vocabulary.numbered(value) if named is None else named


def _row(classes: Sequence[_Class], vocabulary: Vocabulary) -> Iterator[Row]:
    """The row of the classes of a list, in its order; nothing where they are none of the package's."""
    unknown = tuple(one.unknown for one in classes if one.unknown and one.label is None)
    known = [one for one in classes if one.label is not None or one.number is not None]
    if not known and not unknown:
        return
    by_label, by_number = (np.full(vocabulary.count, np.nan) for _ in range(2))
    for one in known:
        if one.shared:  # one of several classes, and nobody knows which
            continue
        value = np.nan if one.value is None else one.value
        by_label[one.number if one.label is None else one.label] = value  # type: ignore[index]
        if one.number is not None:
            by_number[one.number] = value
    both = all(one.number is not None and one.label is not None for one in known) and bool(known)
    values = [one.value for one in known if one.value is not None]
    best = max(known, key=lambda one: -math.inf if one.value is None else one.value, default=None)
    first = None if best is None or best.shared else best.number if best.label is None else best.label
    finite = all(map(math.isfinite, values))
    kind = next((one.kind for one in known if one.kind), "")
    number = best.number if both and best is not None else None
    digits = _decimals(values) if finite else 17
    yield Row(by_label, first, by_number if both else None, number, kind=kind, unknown=unknown, finite=finite, decimals=digits)


def _said(row: Row) -> float:
    if row.doubtful:
        return 0.25
    return float(np.isfinite(row.values).sum()) + 0.5 * (row.by_number is not None)


def _plain(label: str) -> str:
    return _BLANK.sub(" ", label).strip().casefold()


def _kind(key: str) -> str:
    name = key.lower()
    if any(word in name for word in _OF_PROBABILITIES) or name == "p":
        return PROBABILITY
    return SCORE if any(word in name for word in ("score", "logit", "value", "output")) else ""


def _is_number(value: Any) -> bool:
    """Not of the integers that no float is as large as."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST)


def _decimals(values: Sequence[Any] | np.ndarray) -> int:
    """The most digits after the point that one of the numbers has, as JSON would write it."""
    most = 0
    for value in values:
        text = repr(float(value))
        mantissa, _, exponent = text.partition("e")
        digits = len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)
        most = max(most, digits)
    return min(most, 17)
