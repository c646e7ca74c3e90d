"""Does a script print the labels that its model's package has, where it says what is on each image?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_PATH = re.compile(r"\S*[/\\]\S*|\S+\.[A-Za-z]\w{1,4}\b")
_MARKS = "()[]{}<>:,;'\"!"
_WORD = re.compile(r"[^\W\d_]{2,}")
_WHOLE = re.compile(r"(?<![\w.%-])\d{1,9}(?![\w.%-])")
_FEWEST = 4  # images by which names that are nobody's labels are told from other words


_Told = tuple[str, Any]
"""The label that a line names, and the line."""


@dataclass(frozen=True)
class PrintedOtherwise:
    """`printed` stands where the package says `label`, so for `count` of `rows` images or, where that is None, for all of that
    label; for `least` that many where nobody knows which line is which image's."""

    printed: str
    label: str
    rows: int
    count: int | None = None
    least: bool = False


def printed_otherwise(text: str, labels: Sequence[str], outputs: np.ndarray) -> PrintedOtherwise | None:
    """Hold what a script printed against the labels of the largest of its model's outputs, [rows, classes] in their order.

    None where the script prints those labels, or prints no line for each row that tells one class. A line may name the image's
    file, which says nothing of what the script finds on it.
    """
    best = [labels[index] for index in outputs.argmax(1)]
    lines, named = lines_by_label(text, labels)
    if not any(named):
        return _other_names(lines, best) if len(lines) == len(best) >= _FEWEST else None
    told = [next(iter(found)) for found in named if len(found) == 1]
    if len(lines) == len(best) and max(map(len, named)) == 1:  # one that names no class may say that it is none
        told = [next(iter(found), _said(line, label)) for found, line, label in zip(named, lines, best, strict=True)]
    told = [label for label, _ in first_of_each([(label, None) for label in told], len(best))]
    if len(told) != len(best):
        return None
    pairs = list(zip(told, best, strict=True))
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    if apart and len({*pairs}) == len({*best}) < len(best):  # for a label always the same: the lines are in the images' order
        return PrintedOtherwise(*apart[0], len(best), len(apart))
    missing, others = Counter(best) - Counter(told), Counter(told) - Counter(best)
    if missing and 2 * len(apart) <= len(best):  # the lines are in the images' order, or more of them would be apart
        return PrintedOtherwise(*apart[0], len(best), len(apart))
    return (
        PrintedOtherwise(next(iter(others)), next(iter(missing)), len(best), missing.total(), least=len(best) > 1)
        if missing
        else None
    )


def named_otherwise(text: str, label: str, holds: np.ndarray) -> int | None:
    """For how many rows a script names the only label otherwise than the package, which does where it `holds`; None where it
    names it alike, or nowhere, or has no line for each row."""
    named = np.array([bool(found) for found in lines_by_label(text, [label])[1]])
    for lines in (named, named[1:]):  # a table may have a line that names its columns
        if len(lines) == len(holds) and lines.any() and (lines != holds).any():
            return int((lines != holds).sum())
    return None


def numbered_otherwise(text: str, outputs: np.ndarray) -> PrintedOtherwise | None:
    """The same of a model whose classes have no names: None where the script prints the places of the largest outputs, or no
    number for each row that follows from these and is another."""
    best = outputs.argmax(1).tolist()
    lines = [found for line in text.splitlines() if (found := _WHOLE.findall(_PATH.sub(" ", line)))]
    if len(best) < _FEWEST or len(lines) != len(best) or len({*map(len, lines)}) != 1:
        return None
    columns = [list(map(int, column)) for column in zip(*lines, strict=True)]
    for column in columns if best not in columns else ():
        pairs = [*zip(column, best, strict=True)]
        if len({*pairs}) == len({*best}) == len({*column}) < len(best) and len({*column}) > 1:  # a table says one of the other
            printed, index = next(pair for pair in pairs if pair[0] != pair[1])
            count = sum(one != other for one, other in pairs)
            return PrintedOtherwise(str(printed), str(index), len(best), count)
    return None


def first_of_each(told: Sequence[_Told], rows: int) -> Sequence[_Told]:
    """Of lines that tell the same number of best labels for each of the rows, those that tell the very best."""
    each = len(told) // rows
    groups = [tuple(label for label, _ in told[at : at + each]) for at in range(0, len(told), max(1, each))]
    ranked = len(told) == each * rows and all(len({*group}) == each for group in groups) and len({*groups}) > 1
    return told[::each] if each > 1 and ranked else told


def lines_by_label(text: str, labels: Sequence[str]) -> tuple[list[str], list[set[str]]]:
    """The lines of a text without the names of files, and the labels that each names."""
    lines = [cut for line in text.splitlines() if (cut := _without_paths(line, labels)).strip()]
    any_label = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted({*labels}, key=len, reverse=True)))})(?!\w)")
    return lines, [set(any_label.findall(line)) for line in lines]


def _without_paths(line: str, labels: Sequence[str]) -> str:
    """The line without names of files; "T-shirt/top" may be a label's."""
    parts = {part for label in labels for part in label.split()}
    return _PATH.sub(lambda found: found[0] if found[0].strip(_MARKS) in parts else " ", line)


def _said(line: str, label: str) -> str:
    """What a line says: the label where it has the same words, as "great gray owl" is great_gray_owl, or some of them."""
    words = _WORD.findall(line)
    return label if words and {*_WORD.findall(label.casefold())} >= {word.casefold() for word in words} else " ".join(words)


def _other_names(lines: Sequence[str], best: Sequence[str]) -> PrintedOtherwise | None:
    """Words that follow from the label, and are others for some of them."""
    words = [tuple(_WORD.findall(line)) for line in lines]
    by_label = dict(zip(best, words, strict=True))
    follows = all(by_label[label] == found for label, found in zip(best, words, strict=True))
    if not follows or len({*by_label.values()}) < 2 or len(best) == len(by_label):
        return None
    shared = set.intersection(*map(set, words))
    own = {label: " ".join(word for word in found if word not in shared) for label, found in by_label.items()}
    others = ((printed, label) for label, printed in own.items() if printed and _said(printed, label) != label)
    found = next(others, None)
    return PrintedOtherwise(*found, len(best)) if found is not None else None
