"""Copy a repository: cheaply where the file system shares blocks, never out of the repository through a link."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...trust import open_regular
from ..reading.source import folders

FICLONE = 0x40049409  # ioctl_ficlone(2): both files share their blocks until one of them is written
HUGE_BYTES = 4 * 2**30
MARKER = "headrace-report.json"
LEFT_OUT = frozenset({".headrace", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules"})


@dataclass
class Copied:
    """What a copy left as links to the original because of its size, and what it left out (paths in the repository)."""

    linked: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    leading_out: list[str] = field(default_factory=list)
    """Links to what lies outside of the repository, and is there."""
    unreadable: list[str] = field(default_factory=list)
    """What this user may not read: it was left out too."""


def copy_tree(
    source: Path,
    target: Path,
    *,
    leave_out: tuple[Path, ...] = (),
    with_git: bool = True,
    huge: int = HUGE_BYTES,
    progress: Callable[[float, str], None] | None = None,
) -> Copied:
    """Copy `source` to the new or empty folder `target`.

    Folders of more than `huge` bytes right below each other's limit become links to the original, files too. Links inside the
    repository stay as they are; links out of it keep leading where they led. Virtual environments, caches, sockets, pipes and
    devices, links to these, and earlier outputs of Headrace stay out.
    """
    source = source.resolve()
    done = Copied()
    target.mkdir(parents=True, exist_ok=True)
    files = list(_files(source, target, leave_out, with_git, done))
    sizes = [_size(path) for path in files]
    total = sum(sizes)
    linked = _too_big(source, files, sizes, huge) if total > huge else set()
    done.linked = sorted(folder.relative_to(source).as_posix() for folder in linked)
    for big in linked:
        place = target / big.relative_to(source)
        _make(place.parent)
        place.symlink_to(big)
    copied = 0
    for path, size in zip(files, sizes, strict=True):
        if not linked.isdisjoint((path, *path.parents)):
            continue
        place = target / path.relative_to(source)
        _make(place.parent)
        try:
            if _copy_one(source, path, place):
                done.leading_out.append(path.relative_to(source).as_posix())
        except FileNotFoundError:  # a program that runs there removed it meanwhile
            done.left_out.append(path.relative_to(source).as_posix())
        except PermissionError:
            place.unlink(missing_ok=True)
            done.unreadable.append(path.relative_to(source).as_posix())
        copied += size
        if progress is not None:
            progress(copied / max(total, 1), path.name)
    return done


def _files(source: Path, target: Path, leave_out: tuple[Path, ...], with_git: bool, done: Copied) -> Iterator[Path]:
    avoided = {target.resolve(), *(path.resolve() for path in leave_out)}
    for folder, names, files in folders(source):
        here = Path(folder)
        for name in list(names):
            path = here / name
            if path.is_symlink():
                names.remove(name)
                yield path
            elif name in LEFT_OUT or (name == ".git" and not with_git) or path in avoided or is_environment(path):
                names.remove(name)
                if name not in LEFT_OUT:
                    done.left_out.append(path.relative_to(source).as_posix())
            elif not os.access(path, os.R_OK | os.X_OK):
                names.remove(name)
                done.unreadable.append(path.relative_to(source).as_posix())
            elif _is_empty(path):
                _make(target / path.relative_to(source))
        for name in files:
            path = here / name
            if not os.path.lexists(path):
                continue
            if path in avoided or _is_special(path):
                done.left_out.append(path.relative_to(source).as_posix())
            else:
                yield path


def _is_special(path: Path) -> bool:
    """Whether it is a pipe, a socket or a device, whose reading may never end; or a link to one."""
    with contextlib.suppress(OSError):  # a link to nowhere, a loop of links, or it is gone
        kind = path.stat().st_mode
        return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))
    return False


def _make(folder: Path) -> None:
    """With those above it, however many there are: `mkdir` recurses."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for place in reversed(missing):
        place.mkdir(exist_ok=True)


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _is_empty(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return not any(folder.iterdir())
    return False


def is_environment(folder: Path) -> bool:
    """Whether a folder is a virtual environment, or what a migration wrote."""
    return any(os.path.exists(folder / name) for name in ("pyvenv.cfg", "conda-meta", MARKER))  # False where it is closed to us


def _too_big(source: Path, files: list[Path], sizes: list[int], huge: int) -> set[Path]:
    """The outermost folders below the root that are too big by themselves and hold no Python; else the biggest files."""
    weight: dict[Path, int] = {}
    with_code: set[Path] = set()
    for path, size in zip(files, sizes, strict=True):
        for folder in path.relative_to(source).parents:
            weight[folder] = weight.get(folder, 0) + size
            if path.suffix in (".py", ".ipynb"):
                with_code.add(folder)
    chosen: set[Path] = set()
    left = sum(sizes)
    for folder in sorted(weight, key=lambda folder: (-weight[folder], len(folder.parts))):
        if left <= huge:
            break
        if folder != Path() and folder not in with_code and chosen.isdisjoint(folder.parents):
            chosen.add(folder)
            left -= weight[folder]
    for size, path in sorted(((size, path) for path, size in zip(files, sizes, strict=True)), reverse=True):
        if left <= huge:
            break
        relative = path.relative_to(source)
        if path.suffix not in (".py", ".ipynb") and chosen.isdisjoint(relative.parents):
            chosen.add(relative)
            left -= size
    return {source / path for path in chosen}


def _copy_one(source: Path, path: Path, place: Path) -> bool:
    """Whether it is a link that leads out."""
    if path.is_symlink():
        led_to = Path(os.readlink(path))
        resolved = Path(os.path.normpath(path.parent / led_to))
        inside = resolved.is_relative_to(source)
        place.symlink_to(os.path.relpath(resolved, path.parent) if inside else resolved)
        return not inside and os.path.exists(resolved)
    copy_file(path, place)
    return False


def copy_file(path: Path, place: Path) -> None:
    """Copy a file to a place where none is, with its times and rights."""
    with open_regular(path) as reader:
        try:
            with place.open("xb") as writer:
                try:
                    fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
                except OSError:  # another file system, or one that does not share blocks
                    shutil.copyfileobj(reader, writer, 1024 * 1024)
        except OSError as error:  # neither a write nor what is still to be written at the end names a file
            raise OSError(error.errno, error.strerror, str(place)) from error
    with contextlib.suppress(PermissionError):
        shutil.copystat(path, place)
