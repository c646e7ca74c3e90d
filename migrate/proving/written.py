"""The tables and texts that a script writes beside what it prints: many write their answers there and print nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import SandboxError
from .sandbox import read_left

_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl")
_MOST_FILES, _MOST_BYTES = 16, 1 << 20
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
    written = {}
    for path, state in sorted(states(tree).items()):
        if before.get(path) != state and len(written) < _MOST_FILES:
            try:
                written[path] = read_left(tree / path, most=_MOST_BYTES).decode("utf-8", "replace")
            except SandboxError:  # no plain file, or a large one
                continue
    return written


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
        yield f"{key}: {json.dumps(item, ensure_ascii=False)}" if isinstance(value, dict) else json.dumps(item, ensure_ascii=False)
