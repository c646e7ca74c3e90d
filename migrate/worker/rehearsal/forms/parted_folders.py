"""Folders whose folders are the parts of a data set, each with a folder for each class: a script opens every one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from ..stage import Stage

PARTS = ("train", "val", "test")
_LEARNED = "parted"
"""Learned: folders that hold such parts."""
_WITHOUT_CLASSES = re.compile(r"Couldn't find any class folder in (.+?)\.?$")
"""What torchvision says of a folder without folders."""


def has_no_classes(error: BaseException) -> bool:
    """Whether a folder was opened as one of classes, and holds no folder."""
    return isinstance(error, FileNotFoundError) and _WITHOUT_CLASSES.search(str(error)) is not None


def lesson(stage: Stage, error: BaseException, found: Callable[[str], str]) -> bool:
    """A folder of a class was opened as one of classes: those beside it are parts. `found` says where a folder was made."""
    said = _WITHOUT_CLASSES.search(str(error)) if isinstance(error, FileNotFoundError) else None
    folder = os.path.abspath(found(said[1])) if said is not None else ""
    return stage.has_made(os.path.dirname(folder)) and stage.add(_LEARNED, os.path.dirname(folder))


def is_parted(stage: Stage, folder: str) -> bool:
    return os.path.abspath(folder) in stage.learned.get(_LEARNED, ())
