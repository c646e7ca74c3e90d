"""Patterns that say how the names of images begin, `cat.*` or `dog_*.jpg`: a folder that was made has some that begin so."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..making import PER_CLASS, ending_of

_BEGINNING = re.compile(r"(\w[\w. -]*)\*(\.\w+)?")


def lacking(pattern: str, there: Iterable[str]) -> list[str]:
    """The names of images that a pattern asks for in a folder, where none of those that are there begins so."""
    found = _BEGINNING.fullmatch(pattern)
    ending = ".jpg" if found is None or found[2] is None or found[2] == ".*" else ending_of(pattern)
    if found is None or ending is None or any(name.startswith(found[1]) for name in there):
        return []
    return [f"{found[1]}{number:04d}{ending}" for number in range(PER_CLASS)]
