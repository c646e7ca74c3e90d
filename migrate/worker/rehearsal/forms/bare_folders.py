"""Folders that git keeps for data that is not here: a `.gitkeep`, a README, a script that downloads it, and no data."""

from __future__ import annotations

import os
import re

_KEEPERS = (".md", ".rst", ".dvc", "keep")
_BESIDE_DATA = (*_KEEPERS, ".txt", ".py", ".ipynb", ".sh", ".bat", ".yaml", ".yml", ".toml")
_MOST = 40
"""Files; a folder of more is one of a program."""
_WRITTEN = re.compile(r"^(\w+_)?(out(put)?s?|results?|logs?|runs?|checkpoints?|ckpts?|weights|(saved_?)?models?|exp\w*)$", re.I)
"""Folders into which a script writes."""


def is_bare(folder: str) -> bool:
    """Whether a folder is there, and holds at most what stands beside data: no image, no table, no folder with such."""
    return _holds_only(_BESIDE_DATA, folder)


def waits_for_data(folder: str) -> bool:
    """Whether a folder is one that git keeps and no more: not one of code or settings, and none for what the script writes."""
    return _WRITTEN.match(os.path.basename(os.path.normpath(folder))) is None and _holds_only(_KEEPERS, folder)


def _holds_only(endings: tuple[str, ...], folder: str) -> bool:
    count = 0
    for _, below, files in os.walk(folder):
        below[:] = [name for name in below if not name.startswith((".", "__pycache__"))]
        count += len(files)
        if count > _MOST or not all(name.startswith((".", "README")) or name.lower().endswith(endings) for name in files):
            return False
    return os.path.isdir(folder)
