"""An entry of a cache: filled aside, and in its place whole or not at all, however many processes make it at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import MigrateError, disk_fault
from ..scratch import locked
from ..trust import own_folder

_ASIDE = ".new-"
_REMEDY = "name another cache folder in HEADRACE_CACHE"


def kept_folder(path: Path) -> Path:
    """A folder of a cache, whose content is served without another look. Raises MigrateError where it cannot be made, or
    somebody else made it."""
    try:
        return own_folder(path)
    except OSError as error:
        remedy = f"; {_REMEDY}" if error.errno else ""  # what `own_folder` says by itself has one
        raise MigrateError(f"{error.filename}: {error.strerror}{remedy}") from None


@contextlib.contextmanager
def made_aside(entry: Path, complete: Callable[[], bool]) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `entry` when the block ends well.

    An entry that is `complete` by then stays, and this one goes away: another process was first, and a server may have opened
    what it made. What processes left that died is removed first. Raises MigrateError where the disk does not take it.
    """
    parent = entry.parent
    with _explained(parent), contextlib.ExitStack() as stack:
        with locked(parent):  # for what takes no time: nobody waits here for a package that another one makes
            _remove_left(parent)
            aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=parent))
            stack.callback(shutil.rmtree, aside, ignore_errors=True)
            stack.enter_context(locked(aside))
        filled = aside / "entry"
        filled.mkdir(mode=0o700)
        yield filled
        with locked(parent):
            if complete():
                return
            if os.path.lexists(entry):  # somebody removed files of it, or a process of an earlier version died
                entry.rename(aside / "before")
            filled.rename(entry)


@contextlib.contextmanager
def _explained(cache: Path) -> Iterator[None]:
    """A disk that fails on the way to the cache becomes MigrateError with the remedy."""
    try:
        yield
    except OSError as error:
        fault = disk_fault(error)
        if fault is None or (fault.place and not Path(fault.place).is_relative_to(cache)):
            raise
        raise MigrateError(f"{cache} cannot keep what is packaged: {fault.reason}; free space there, or {_REMEDY}") from error


def _remove_left(parent: Path) -> None:
    for folder in parent.glob(f"{_ASIDE}*"):
        with contextlib.suppress(BlockingIOError), locked(folder, wait=False):
            shutil.rmtree(folder, ignore_errors=True)
