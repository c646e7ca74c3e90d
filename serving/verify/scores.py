"""How far an endpoint's answers are from what is expected: the one place that compares them and knows what scores are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.artifact.agreement import sigmoid, softmax
from ...runtime.base.task import MULTI_LABEL, Head
from .answers import PROBABILITY, Row

_FLOOR = 1e-12
"""Probabilities below are one as good as the other."""
_FEW_DECIMALS = 6
_MOST_COLUMNS = 4000
_AGREEING_VOTES = 0.9
_CLEARLY = 0.7


@dataclass(frozen=True)
class Refusal:
    """Why an image has no answer that can be read; `busy` where it might have one later."""

    why: str
    busy: bool = False


@dataclass(frozen=True)
class Way:
    """How a model's outputs become what is answered. `centered`: only differences between the classes of an image count."""

    name: str
    text: str
    function: Callable[[np.ndarray], np.ndarray]
    centered: bool = False


def ways(head: Head, *, upload: bool, kind: str) -> tuple[tuple[Way, ...], tuple[Way, ...]]:
    """What may be answered, and what is wrong: (right ones, faults). `head` says whether the packaged model gives probabilities
    itself. An `upload` may answer with probabilities whatever the model gives, and its values have a `kind`; a protocol's
    outputs are the model's own. Of what is no score of labels, such as an embedding, only the values themselves are right."""
    same = Way("outputs", "the answers are the model's raw outputs", lambda outputs: outputs)
    if not head.classifies:
        return (same,), ()
    several = head.kind == MULTI_LABEL
    name, activation = ("sigmoid", sigmoid) if several else ("softmax", softmax)
    ones = Way("ones", "the softmax is over the batch instead of the classes", np.ones_like)
    if head.probabilities:
        percent = Way("percent", "the answers are percentages", lambda outputs: 100 * outputs)
        twice = Way(name, f"{name} is applied twice: the model's outputs are probabilities already", activation)
        missing = Way("logarithm", f"{name} is missing", lambda outputs: np.log(np.maximum(outputs, _FLOOR)), centered=True)
        return (same, percent) if upload else (same,), (twice, missing, ones)
    once = Way(name, f"a {name} is applied that the packaged model does not have", activation)
    percent = Way("percent", "the answers are percentages", lambda outputs: 100 * activation(outputs))
    other, instead = ("softmax", softmax) if several else ("sigmoid", sigmoid)
    others = (
        Way("twice", f"{name} is applied twice", lambda outputs: activation(activation(outputs))),
        Way(other, f"a {other} stands in the place of the {name}", instead),
        Way("logarithm", "the answers are logarithms of probabilities", lambda outputs: np.log(activation(outputs) + _FLOOR)),
        ones,
    )
    if not upload:
        return (same,), (once, *others)
    if kind == PROBABILITY:
        missing = Way("outputs", f"{name} is missing: what is called a probability is a raw score", lambda outputs: outputs)
        return (once, percent), (missing, *others)
    return (once, percent, same), others


def likeliest(right: Sequence[Way], answers: Answers, outputs: np.ndarray) -> Way:
    """The way whose values are most like the answers', whichever class has them; the first where none stands out."""
    off = []
    for way in right:
        expected = way.function(outputs)
        errors = []
        for row, wanted in zip(answers.values, expected, strict=True):
            given = np.sort(row[np.isfinite(row)])[::-1]
            errors.append(given - np.sort(wanted)[::-1][: len(given)])
        together = np.concatenate(errors)
        off.append(float(np.sqrt(np.mean(np.square(together)))) / (float(expected.std()) or 1.0) if together.size else 0.0)
    best = int(np.argmin(off))
    return right[best] if off[best] < _CLEARLY * off[0] else right[0]


class Answers:
    """What was said of several images, in their order."""

    def __init__(self, rows: Sequence[Row | Refusal], count: int = 0) -> None:
        """`count` is the number of classes, where no row may say it."""
        self.rows = tuple(rows)
        read = [row for row in rows if isinstance(row, Row)]
        self.count = len(read[0].values) if read else count
        nothing = np.full(self.count, np.nan)
        self.values = np.array([row.values if isinstance(row, Row) else nothing for row in rows]).reshape(len(rows), self.count)
        self.first = [row.first if isinstance(row, Row) else None for row in rows]
        self.decimals = max((row.decimals for row in read), default=17)
        self.kind = next((row.kind for row in read if row.kind), "")

    def by_number(self) -> Answers | None:
        """The same by the numbers beside the labels, where all have both."""
        rows: list[Row | Refusal] = []
        for row in self.rows:
            if isinstance(row, Refusal):
                rows.append(row)
            elif row.by_number is None:
                return None
            else:
                rows.append(Row(row.by_number, row.number, kind=row.kind, decimals=row.decimals))
        return Answers(rows, self.count)

    def subset(self, indices: Sequence[int]) -> Answers:
        return Answers([self.rows[index] for index in indices], self.count)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What distances are measured in: `signal` is what tells images apart, of values as they are or of their logarithms.

    Logarithms show what probabilities near 0 and 1 hide, unless they are rounded: then what rounding may do is forgiven.
    """

    signal: float
    logarithms: bool
    rounding: float

    @classmethod
    def of(cls, answers: Answers, expected: np.ndarray) -> Scale:
        """For these answers to what a right endpoint answers, [images, classes]."""
        known = answers.values[np.isfinite(answers.values)]
        probabilities = known.size > 0 and known.min() >= 0 and known.max() <= 1 + 1e-6 and expected.min() >= 0
        rounded = answers.decimals <= _FEW_DECIMALS
        rounding = 0.5 * 10.0**-answers.decimals if rounded else 0.0
        if known.size == 0 or rounding > 0.01 * np.abs(known).max():  # so coarse that it would forgive everything
            rounding = 0.0
        logarithms = bool(probabilities and not rounding)
        seen = np.log(np.maximum(expected, _FLOOR)) if logarithms else expected
        signal = float(np.sqrt(np.mean(np.square(seen - seen.mean(axis=0, keepdims=True)))))
        size = float(np.sqrt(np.mean(np.square(seen))))
        return cls(signal=signal if signal > 1e-9 * size else size or 1.0, logarithms=logarithms, rounding=1.01 * rounding)

    def seen(self, values: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(values, _FLOOR)) if self.logarithms else values


def distances(answers: Answers, expected: np.ndarray, scale: Scale, *, centered: bool = False) -> np.ndarray:
    """Per image the root mean square of the error, as a share of what tells images apart; NaN where there is no answer.

    Of an answer that names a class without a value it is 0 where that is the likeliest one, and 1 elsewhere. Where `expected`
    is NaN nothing is known.
    """
    unknown = np.isnan(expected)
    known = np.isfinite(answers.values) & ~unknown
    given, wanted = (scale.seen(np.where(known, values, 1.0)) for values in (answers.values, expected))
    error = np.where(known, given - wanted, 0.0)
    counts = known.sum(axis=1)
    if centered:
        error -= np.where(known, (error.sum(axis=1) / np.maximum(counts, 1))[:, np.newaxis], 0.0)
    error = np.maximum(np.abs(error) - scale.rounding, 0.0)
    found = np.sqrt(np.square(error).sum(axis=1) / np.maximum(counts, 1)) / scale.signal
    for index, first in enumerate(answers.first):
        if isinstance(answers.rows[index], Refusal):
            found[index] = np.nan
        elif not np.isfinite(answers.values[index]).any():
            if first is None:
                found[index] = 1.0 if answers.rows[index].unknown else np.nan  # type: ignore[union-attr] # a row, see above
            elif unknown[index, first]:
                found[index] = np.nan
            else:
                found[index] = float(expected[index, first] < np.nanmax(expected[index]))
    return np.asarray(found)


def residual(errors: np.ndarray) -> float:
    """One number for the errors of several images: their root mean square; infinite where none was answered."""
    known = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(np.square(known)))) if known.size else float("inf")


def reordered(expected: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """The same where class i is called order[i], or by nobody knows which name (-1): what is called so is NaN."""
    made: np.ndarray = np.full_like(expected, np.nan)
    named = [number for number in range(len(order)) if order[number] >= 0]
    made[:, [order[number] for number in named]] = expected[:, named]
    return made


def find_order(answers: Answers, expected: np.ndarray, scale: Scale) -> tuple[int, ...] | None:
    """The order of classes that makes the answers fit best, where one is to be seen: every class is called by one other's name.

    Values for every class are matched column by column; of answers with a few classes, what stands at the same rank, -1 where
    that says nothing.
    """
    read = [index for index, row in enumerate(answers.rows) if isinstance(row, Row)]
    values = answers.values[read]
    if np.isfinite(values).all() and len(read) > 1 and answers.count <= _MOST_COLUMNS:
        given, wanted = scale.seen(values), scale.seen(expected[read])
        nearest = [int(np.square(given - wanted[:, [index]]).sum(axis=0).argmin()) for index in range(answers.count)]
        order: tuple[int, ...] | None = tuple(nearest) if len(set(nearest)) == answers.count else None
    else:
        order = _order_by_rank(answers, expected)
    return None if order is None or order == tuple(range(answers.count)) else order


def _order_by_rank(answers: Answers, expected: np.ndarray) -> tuple[int, ...] | None:
    votes: dict[int, dict[int, int]] = {}
    for index, row in enumerate(answers.rows):
        if isinstance(row, Refusal):
            continue
        listed = [int(number) for number in np.flatnonzero(np.isfinite(row.values))]
        listed.sort(key=lambda number: -row.values[number])
        if not listed and row.first is not None:
            listed = [row.first]
        for called, number in zip(listed, np.argsort(-expected[index], kind="stable"), strict=False):
            of = votes.setdefault(int(number), {})
            of[called] = of.get(called, 0) + 1
    chosen = {number: max(of, key=lambda called: of[called]) for number, of in votes.items()}
    agreeing = sum(votes[number][called] for number, called in chosen.items())
    total = sum(sum(of.values()) for of in votes.values())
    if len(set(chosen.values())) < len(chosen) or total < 2 * len(chosen) or agreeing < _AGREEING_VOTES * total:
        return None
    if all(number == called for number, called in chosen.items()):
        return None
    return tuple(chosen.get(number, -1) for number in range(answers.count))
