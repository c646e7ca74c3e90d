"""Files of ImageNet's classes, which are the same everywhere: their names as torchvision or timm has them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
from pathlib import Path
from typing import NamedTuple

_FILE = re.compile(
    r"imagenet[\w-]*?(class|label|categor|name|synset|index|idx)|^(LOC_)?synset(_?words|_mapping|s)|^ilsvrc[\w-]*synset", re.I
)
_OTHERS = re.compile(r"(21|22|12)_?k|tiny|mini|[-_](a|r|v2|100|200|o)([-_.]|$)|imagenet[-_]?(100|200|r|a)(?![0-9a-z])", re.I)
_WITH_NUMBERS = re.compile(r"synset(_?words|_mapping)", re.I)
COUNT = 1000


class Known(NamedTuple):
    synset: str
    """Its number in WordNet, such as n01440764; made up where timm is not installed."""
    name: str


def of(path: str) -> list[Known] | None:
    """The thousand classes in their order where a file is called as a list of them is; None of another file, and where no
    library says their names."""
    name = os.path.basename(path)
    return (_all() or None) if _FILE.search(name) and not _OTHERS.search(name) else None


def lines(path: str) -> str | None:
    """Such a list as text, a class in each line."""
    known = of(path)
    if known is None:
        return None
    numbered = _WITH_NUMBERS.search(os.path.basename(path)) is not None
    return "".join(f"{item.synset} {item.name}\n" if numbered else f"{item.name}\n" for item in known)


@functools.cache
def _all() -> list[Known]:
    with contextlib.suppress(ImportError, AttributeError):
        names: list[str] = importlib.import_module("torchvision.models._meta")._IMAGENET_CATEGORIES
        return [Known(*pair) for pair in zip(_synsets(len(names)), names, strict=True)]
    return []


def _synsets(count: int) -> list[str]:
    with contextlib.suppress(ImportError, OSError):
        found = Path(importlib.import_module("timm.data").__path__[0], "_info", "imagenet_synsets.txt").read_text().split()
        if len(found) == count:
            return found
    return made_up(count)


def made_up(count: int) -> list[str]:
    """So many numbers as WordNet's look."""
    return [f"n{number:08d}" for number in range(count)]
