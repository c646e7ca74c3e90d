"""Does a script print the scores that its model's package gives, where it names the package's labels?"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...proving.texts.printed import masked
from .printed_labels import first_of_each, lines_by_label

_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d+(?:e[-+]?\d+)?|\d+(?=\s?%))(?![\w.])", re.I)
_CALLED_SO = re.compile(r"(?:\b(?:prob\w*|conf\w*|scores?|certainty|p)\W*$)", re.I)
_FEWEST = 5  # images by which a score is told from another number that stands anywhere
_WITH_THE_SCORE = 0.5  # correlation of ranks, of many images
_NO_CHANCE = 2.0  # standard deviations of that of numbers that go with nothing, 1/sqrt(rows - 1)
_PERCENT = 100.0
_RELATIVE = 2e-3


@dataclass(frozen=True)
class ScoredOtherwise:
    """`printed` stands beside `label`, of which the package gives `score`: the worst of `count` of `rows` images."""

    printed: float
    label: str
    score: float
    rows: int
    count: int


@dataclass(frozen=True)
class _Column:
    """Numbers that stand at the same place of all lines, and how far their rounding may move one of them."""

    values: np.ndarray
    rounding: float
    called_so: bool
    """Whether each stands right behind the label, or behind a word for a score, or is in percent."""


def scored_otherwise(text: str, labels: Sequence[str], outputs: np.ndarray) -> ScoredOtherwise | None:
    """Hold the numbers that a script printed beside labels against its model's outputs, [rows, classes].

    None where one of them is what the model gives, in any form; and where none lies between 0 and 1, or in percent, and goes
    with the package's score over the images or, of few, is called a score and no less than the best of so many can have.
    """
    best = [labels[index] for index in outputs.argmax(1)]
    lines, named = lines_by_label(text, labels)
    told = [(next(iter(found)), masked(line)) for line, found in zip(lines, named, strict=True) if len(found) == 1]
    telling = first_of_each(told, len(best))
    if [label for label, _ in telling] != best:
        return None
    outputs = outputs.astype(np.float64)
    shares = outputs if _are_shares(outputs) else _softmax(outputs)
    score, columns = shares.max(1), _columns(telling)
    if any(_is_given(column, outputs, shares) for column in columns):
        return None
    for column in columns:
        for unit in (1.0, _PERCENT):
            printed = column.values / unit
            apart = np.abs(printed - score)
            count = int((apart > column.rounding / unit + _RELATIVE).sum())
            if not count or not bool((printed >= 0).all() and (printed <= 1).all()):
                continue
            possible = bool((printed >= 1 / outputs.shape[1]).all())  # the least that the best of so many can have
            if len(best) < _FEWEST:
                other = possible and column.called_so
            else:
                least = max(_WITH_THE_SCORE, _NO_CHANCE / math.sqrt(len(best) - 1))
                other = (possible or unit == 1) and _together(printed, score) >= least
            if other:
                at = int(apart.argmax())
                return ScoredOtherwise(float(printed[at]), best[at], float(score[at]), len(best), count)
    return None


def _columns(telling: Sequence[tuple[str, str]]) -> list[_Column]:
    found = [list(_NUMBER.finditer(line)) for _, line in telling]
    if len({len(numbers) for numbers in found}) != 1:
        return []
    made = []
    for column in zip(*found, strict=True):
        texts = [number[0] for number in column]
        so = all(
            _is_called_so(line, label, number) for (label, line), number in zip(telling, column, strict=True)
        )  # fmt: skip
        made.append(_Column(np.array(texts, dtype=np.float64), max(map(_rounding, _as_rounded(texts))), so))
    return made


def _is_called_so(line: str, label: str, number: re.Match[str]) -> bool:
    before = line[: number.start()]
    return (
        line[number.end() :].lstrip().startswith("%")
        or _CALLED_SO.search(before) is not None
        or not re.search(r"\w", before.rpartition(label)[2] if label in before else "x")
    )


def _as_rounded(texts: Sequence[str]) -> list[str]:
    """The numbers without the zeros at their ends that all have: what is rounded to whole percents may be printed as 44.00."""
    if len(texts) < _FEWEST or not all(re.fullmatch(r"-?\d+\.\d+", text) for text in texts):
        return list(texts)
    zeros = min(len(text) - len(text.rstrip("0")) for text in texts)
    return [text[: len(text) - zeros] for text in texts]


def _rounding(text: str) -> float:
    """A unit of the last place of a number, since some cut what others round."""
    digits, _, exponent = text.lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])))


def _is_given(column: _Column, outputs: np.ndarray, shares: np.ndarray) -> bool:
    """Whether a column is what the model gives for one class, or for the one at a place of the order, in a form that is
    printed."""
    logarithms = np.log(np.maximum(shares, np.finfo(np.float64).tiny))
    forms = (outputs, shares, _PERCENT * shares, _PERCENT * outputs, logarithms, -logarithms)
    atol = column.rounding + _RELATIVE
    return any(
        np.isclose(column.values, given, rtol=_RELATIVE, atol=atol).all()
        for form in (*forms, *(np.sort(form, axis=1) for form in forms))
        for given in form.T
    )


def _are_shares(outputs: np.ndarray) -> bool:
    return bool((outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=_RELATIVE))


def _softmax(outputs: np.ndarray) -> np.ndarray:
    powers = np.exp(outputs - outputs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _together(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's correlation of ranks; zero where one is the same in all rows."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    ranks = (values.argsort().argsort().astype(np.float64) for values in (one, other))
    return round(float(np.corrcoef(*ranks)[0, 1]), 6)
