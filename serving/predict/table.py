"""Rows as people read them: the best class of each image, its score, and what comes next; by what the model's outputs are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .predict import Row

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN_NUMBERS = 4  # of a vector


def table(rows: Sequence[Row]) -> Table:
    """One line for each image; for each of its outputs where there are several. `rows` may hold names with anything in them."""
    from rich.table import Table
    from rich.text import Text

    lines = [(row, line) for row in rows for line in ([("", "error", "", row.error)] if row.error else shown(row.answer))]
    several = any(output for _, (output, *_) in lines)
    made = Table(box=None, pad_edge=False)
    made.add_column("image", overflow="fold")
    if several:
        made.add_column("output", overflow="fold")
    made.add_column("best", overflow="fold", style="bold")
    made.add_column("score", justify="right", no_wrap=True)
    made.add_column("next", overflow="fold")
    before = None
    for row, (output, best, score, following) in lines:
        name = Text("" if row is before else printable(row.image))
        first = Text(printable(best), "red" if row.error else "")
        made.add_row(name, *([Text(output)] if several else []), first, score, Text(printable(following)))
        before = row
    return made


def shown(answer: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Of the server's answer, the output's name where there are several, the best, its score and the next ones."""
    if "heads" in answer:
        return [(printable(name), *_labels(head)) for name, head in answer["heads"].items()]
    if "embeddings" in answer:
        return [(printable(name), *_vector(vector)) for name, vector in answer["embeddings"].items()]
    return [("", *(_vector(answer["embedding"]) if "embedding" in answer else _labels(answer)))]


def printable(text: str) -> str:
    """The text with what would steer a terminal, or is no character at all, spelled out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def _labels(answer: Mapping[str, Any]) -> tuple[str, str, str]:
    found = answer["predictions"]
    if not found:
        return "no label above its threshold", "", ""
    best, *others = found
    return _name(best), _share(best), ", ".join(f"{_name(other)} {_share(other)}" for other in others)


def _vector(vector: Sequence[float]) -> tuple[str, str, str]:
    begins = ", ".join(f"{value:.4g}" for value in vector[:_SHOWN_NUMBERS])
    more = ", ..." if len(vector) > _SHOWN_NUMBERS else ""
    return f"{len(vector)} numbers of length {math.hypot(*vector):.4g}", "", f"{begins}{more}"


def _name(found: Mapping[str, Any]) -> str:
    return str(found["index"]) if found["label"] is None else str(found["label"])


def _share(found: Mapping[str, Any]) -> str:
    return f"{found['probability']:.1%}"


def described(rows: Iterable[Row]) -> str:
    """How many there were, in a line."""
    errors = [row.error for row in rows]
    failed = sum(error is not None for error in errors)
    counted = f"{len(errors)} image{'s' if len(errors) != 1 else ''}"
    return f"{counted}, {failed} of them could not be answered" if failed else counted
