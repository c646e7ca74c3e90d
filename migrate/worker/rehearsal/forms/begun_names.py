"""What patterns of names ask for that a made folder has not: images whose names begin so, `cat.*` or `dog_*.jpg`, or a table
beside the images, `*.csv`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..making import PER_CLASS, ending_of

_TABLE = re.compile(r"\*(\.[ct]sv)")
_BEGINNING = re.compile(r"(\w[\w. -]*)\*(\.\w+)?")


def lacking(pattern: str, there: Iterable[str]) -> list[str]:
    """The names of images that a pattern asks for in a folder, where none of those that are there begins so; of a table where
    there is none."""
    if (table := _TABLE.fullmatch(pattern)) is not None:
        return [] if any(name.endswith(table[1]) for name in there) else [f"labels{table[1]}"]
    found = _BEGINNING.fullmatch(pattern)
    ending = ".jpg" if found is None or found[2] is None or found[2] == ".*" else ending_of(pattern)
    if found is None or ending is None or any(name.startswith(found[1]) for name in there):
        return []
    return [f"{found[1]}{number:04d}{ending}" for number in range(PER_CLASS)]
