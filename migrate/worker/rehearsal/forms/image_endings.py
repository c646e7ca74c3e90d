"""How the images of a made folder end, where a script takes others than most do."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable, Sequence

from ..making import ENDINGS, ending_of
from ..stage import Stage

_SUPPORTED = re.compile(r"Supported extensions are: ([\w., ]+)")
"""What torchvision's folders say of those that have no file with one of the endings that they were given."""


def end_otherwise(stage: Stage) -> bool:
    """Have the next attempt's images end as those for which the script looked where they lie."""
    return _learned(stage, {folder: list(looked) for folder, looked in stage.looked.items() if looked is not None})


def lesson(stage: Stage, error: BaseException, frames: Sequence[types.FrameType], found: Callable[[str], str]) -> bool:
    """torchvision names the endings that a folder's files should have; `found` says where that folder was made."""
    said = _SUPPORTED.search(str(error)) if isinstance(error, FileNotFoundError) else None
    frame = next((frame for frame in reversed(frames) if "directory" in frame.f_locals), None)
    if said is None or frame is None:
        return False
    endings = (f".{word.strip().strip('.')}" for word in said[1].split(","))
    ending = next((ending for ending in endings if ending_of(ending) is not None), None)
    folder = os.path.abspath(found(os.fspath(frame.f_locals["directory"])))
    return ending is not None and _learned(stage, {folder: [ending, True]})


def _learned(stage: Stage, wanted: dict[str, list[str | bool]]) -> bool:
    known = stage.learned.get(ENDINGS, {})
    return any(folder not in known for folder in wanted) and stage.learn(ENDINGS, {**wanted, **known})
