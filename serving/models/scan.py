"""What lies in a models folder: which folders are models, and which of them belong together."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from ...errors import ArtifactError
from ...runtime.artifact.model_config import FILE, read_config
from ...runtime.artifact.model_folder import companion_target
from .snapshots import Members

log = logging.getLogger("headrace.serving")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def model_folders(root: Path) -> list[str]:
    """The names of the models in a folder, sorted. Hidden folders, among them those that are being written, are none."""
    names = []
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and (folder / FILE).is_file():
            if _NAME.fullmatch(folder.name):
                names.append(folder.name)
            elif not folder.name.startswith("."):
                log.warning("skipping %r: a model's name is made of letters, digits, '.', '_' and '-'", folder.name)
    return names


def scan(root: Path) -> Mapping[str, Members]:
    """The groups of a models folder by the name of their tensor model, which need not be there itself. A folder whose config
    cannot be read counts as a tensor model: loading it says what is wrong."""
    tensors: list[str] = []
    companions: dict[str, list[str]] = {}
    for name in model_folders(root):
        try:
            target = companion_target(name, read_config(root / name))
        except ArtifactError:
            target = None
        if target is None:
            tensors.append(name)
        else:
            companions.setdefault(target, []).append(name)
    return {
        name: Members(tensor=name in tensors, companions=tuple(companions.get(name, ())))
        for name in sorted({*tensors, *companions})
    }
