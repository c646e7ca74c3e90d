"""What lies in a models folder: which folders are models, and which of them belong together."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from ...errors import ArtifactError
from ...runtime.artifact.model_config import FILE
from ...runtime.artifact.model_folder import companion_target
from .foreign.ensemble import step_names
from .foreign.files import declared_config, has_graph, is_packaged
from .snapshots import Members

log = logging.getLogger("headrace.serving")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def model_folders(root: Path) -> list[str]:
    """The names of the models in a folder, sorted. Hidden folders, among them those that are being written, are none."""
    names = []
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and ((folder / FILE).is_file() or has_graph(folder)):
            if _NAME.fullmatch(folder.name):
                names.append(folder.name)
            elif not folder.name.startswith("."):
                _skip(folder)
    return names


@functools.lru_cache(1024)
def _skip(folder: Path) -> None:
    """Say so once, not at every look."""
    log.warning("skipping %r: a model's name is made of letters, digits, '.', '_' and '-'", folder.name)


def scan(root: Path) -> Mapping[str, Members]:
    """The groups of a models folder by the name of their tensor model, which need not be there itself. A folder whose config
    cannot be read counts as a tensor model: loading it says what is wrong. A foreign model, or ensemble, has no companions."""
    tensors: list[str] = []
    companions: dict[str, list[str]] = {}
    for name in model_folders(root):
        target = _target(root / name, _stamp(root / name / FILE))
        if target is not None and (root / target).is_dir() and not is_packaged(root / target):
            target = None
        if target is None:
            tensors.append(name)
        else:
            companions.setdefault(target, []).append(name)
    return {
        name: Members(tensor=name in tensors, companions=tuple(companions.get(name, ())))
        for name in sorted({*tensors, *companions})
    }


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Tells a file from what it was before; None where there is none."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


@functools.lru_cache(1 << 14)
def _target(folder: Path, stamp: tuple[int, ...] | None) -> str | None:
    """The tensor model that a folder is a companion of, as its config says that looks so: every load and unload looks at all
    folders, and hundreds of configs take seconds to read."""
    try:
        return companion_target(folder.name, declared_config(folder))
    except ArtifactError:
        return None


def foreign_models(root: Path) -> list[str]:
    """The models of a folder that Headrace did not write, which only a single process serves."""
    if not root.is_dir():
        return []
    return [name for name, members in scan(root).items() if members.tensor and not is_packaged(root / name)]


def steps_below(root: Path, names: Collection[str]) -> set[str]:
    """The models of a folder that foreign ensembles of these names need, and those that these need; without the names."""
    groups, found, left = scan(root), set[str](), {*names}
    while left:
        name = left.pop()
        if name in groups and groups[name].tensor:
            with contextlib.suppress(ArtifactError):  # loading it says what is wrong
                steps = {*step_names(declared_config(root / name))}
                left |= steps - found - {*names}
                found |= steps - {*names}
    return found
