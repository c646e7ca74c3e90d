"""A model repository, as `headrace migrate` and `compile` write it, or Triton has it; also one inside a migrated copy."""

from __future__ import annotations

from pathlib import Path

from ...prepared import migrated_from
from ..folders import ModelsFolder
from ..source import Options, Source


def takes(what: str) -> bool:
    """Whether there are folders of models in it, or it is a folder in which nothing lies that could be another kind."""
    path = Path(what)
    return any(path.glob("*/config.pbtxt")) or (path.is_dir() and (migrated_from(path) is not None or not any(path.iterdir())))


def read(what: str, options: Options) -> ModelsFolder:
    path = Path(what)
    if any(path.glob("*/config.pbtxt")) or (migrated := migrated_from(path)) is None:
        return ModelsFolder(path)
    return ModelsFolder(migrated[0])


SOURCE = Source(form="a models folder", order=0, takes=takes, read=read)
