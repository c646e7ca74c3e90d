"""A folder with PyTorch code: migrated, once for as long as its files stay as they are."""

from __future__ import annotations

from pathlib import Path

from ..folders import Repository
from ..source import Options, Source


def takes(what: str) -> bool:
    """Whether Python files or notebooks lie in it; whether a model does, the migration says."""
    path = Path(what)
    return path.is_dir() and any(file for kind in ("*.py", "*.ipynb") for file in (*path.glob(kind), *path.glob(f"*/{kind}")))


def read(what: str, options: Options) -> Repository:
    return Repository(Path(what))


SOURCE = Source(form="a folder with PyTorch code", order=60, takes=takes, read=read)
