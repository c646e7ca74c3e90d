"""The tables and texts that a script writes beside what it prints: many write their answers there and print nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ....errors import SandboxError
from ..sandbox import read_left
from .printed import NUMBER, masked

_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl")
_MOST_FILES, _MOST_BYTES = 16, 1 << 20
_SHOWN = 80  # characters of a line
_RELATIVE, _ABSOLUTE = 1e-2, 1e-3
"""Files hold all digits of numbers whose models agree within less, and the smallest of a softmax go furthest apart."""
State = tuple[int, int, int]
"""What changes with whatever writes to a file, or puts another in its place."""


def states(tree: Path) -> dict[str, State]:
    """The tables and texts below a folder as they are, by their paths in it; links are not followed."""
    found = {}
    for folder, _, names in os.walk(tree):
        for name in names:
            if name.lower().endswith(_TEXTS):
                path = Path(folder, name)
                status = path.lstat()
                found[str(path.relative_to(tree))] = (status.st_ino, status.st_size, status.st_ctime_ns)
    return found


def written_since(tree: Path, before: Mapping[str, State]) -> dict[str, str]:
    """What a run wrote into such files, by path: of many or large ones some are left out."""
    written: dict[str, str] = {}
    for path, state in sorted(states(tree).items()):
        if before.get(path) != state and len(written) < _MOST_FILES:
            try:
                written[path] = read_left(tree / path, most=_MOST_BYTES).decode("utf-8", "replace")
            except SandboxError:  # no plain file, or a large one
                continue
    return written


def differs(before: Mapping[str, str], after: Mapping[str, str], again: Mapping[str, str] | None = None) -> str | None:
    """What a run wrote otherwise than another, but for rounding and times; a file that a second run of the first writes
    otherwise, too, says nothing."""
    for path, text in before.items():
        if again is not None and (path not in again or _first_apart(text, again[path]) is not None):
            continue
        if path not in after:
            return f"it did not write {path}"
        if (apart := _first_apart(text, after[path])) is not None:
            return f"it wrote {apart[1]!r} into {path} instead of {apart[0]!r}"
    return None


def _first_apart(one: str, other: str) -> tuple[str, str] | None:
    for before, after in zip_longest(one.splitlines(), other.splitlines(), fillvalue=""):
        if before != after and not _alike(masked(before), masked(after)):
            return before[:_SHOWN], after[:_SHOWN]
    return None


def _alike(one: str, other: str) -> bool:
    numbers = [NUMBER.findall(line) for line in (one, other)]
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    return all(
        math.isclose(float(a), float(b), rel_tol=_RELATIVE, abs_tol=_ABSOLUTE) if {*".eE"} & {*a} else a == b
        for a, b in zip(*numbers, strict=True)
    )


def as_lines(path: str, text: str) -> str:
    """The text with one line for each record; a JSON document may have one on several."""
    if not path.lower().endswith(".json"):
        return text
    try:
        return "\n".join(_records(json.loads(text)))
    except (ValueError, RecursionError):
        return text


def _records(value: Any) -> Iterator[str]:
    """The records of a document: what lies in its outermost list or object, or in the only list within that."""
    inner = [item for item in value.values() if isinstance(item, list)] if isinstance(value, dict) else []
    if len(inner) == 1 and all(isinstance(item, dict) for item in inner[0]):
        value = inner[0]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (
            f"{key}: {json.dumps(item, ensure_ascii=False)}"
            if isinstance(value, dict)
            else json.dumps(item, ensure_ascii=False)
        )
