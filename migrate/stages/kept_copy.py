"""A copy of a repository that is brought back to what it was: only what a run changed in it is copied again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...scratch import remove_tree
from .copy_tree import copy_file


@dataclass(frozen=True)
class _Entry:
    """What tells that a file, link or folder of the copy is as it was made. Whatever writes to a file, or puts another in its
    place, changes one of these, and nobody can set the time of its last change back; a folder is as it was if it is one."""

    mode: int
    inode: int = 0
    size: int = 0
    changed: int = 0
    link: str | None = None


class KeptCopy:
    """The copy of `source` in `place`, as it is now."""

    def __init__(self, source: Path, place: Path) -> None:
        self._source, self._place = source, place
        self._entries = dict(_entries(place))

    def restore(self) -> bool:
        """Undo what was done to the copy since it was made; false where that cannot be done, and a new copy is needed."""
        try:
            now = dict(_entries(self._place))
            for path in sorted(now.keys() - self._entries.keys()):
                _remove(self._place / path)
            for path in sorted(self._entries):  # a folder comes before what it holds, so no link is followed
                if now.get(path) != self._entries[path]:
                    self._make_again(path, now.get(path))
        except OSError:
            return False
        return True

    def _make_again(self, path: str, now: _Entry | None) -> None:
        before, place = self._entries[path], self._place / path
        is_folder = stat.S_ISDIR(before.mode)
        if not (is_folder and now is not None and stat.S_ISDIR(now.mode)):
            _remove(place)
        if is_folder:
            place.mkdir(exist_ok=True)
            place.chmod(stat.S_IMODE(before.mode))
            return
        if before.link is not None:
            place.symlink_to(before.link)
        else:
            copy_file(self._source / path, place)
        self._entries[path] = _entry(place, place.lstat())


def _entries(place: Path) -> Iterator[tuple[str, _Entry]]:
    """Whatever lies below a folder, by its path in it; links are not followed."""
    folders = [""]
    while folders:
        above = folders.pop()
        with os.scandir(place / above) as found:
            for item in found:
                path = os.path.join(above, item.name)
                yield path, _entry(Path(item.path), item.stat(follow_symlinks=False))
                if item.is_dir(follow_symlinks=False):
                    folders.append(path)


def _entry(path: Path, found: os.stat_result) -> _Entry:
    if stat.S_ISDIR(found.st_mode):
        return _Entry(found.st_mode)
    link = os.readlink(path) if stat.S_ISLNK(found.st_mode) else None
    return _Entry(found.st_mode, found.st_ino, found.st_size, found.st_ctime_ns, link)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
