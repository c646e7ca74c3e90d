"""Folders for temporary files, which the next command removes where one was killed, and the lock of a folder."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: who writes to one folder has to take turns by himself there, and what is left stays
    fcntl = None  # type: ignore[assignment]

__all__ = ["ScratchFolder", "locked", "remove_tree"]

_PREFIX = "headrace-scratch-"
_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")  # as tempfile makes names: no user's folder is called so
_JUST_MADE = 60.0
"""Seconds in which a folder may not have its lock yet."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class ScratchFolder:
    """A new folder, removed at the end of a `with` block, by `cleanup`, or when nobody has it any more.

    The folder around it is locked for as long as the process lives that made it, so that others tell what a killed one left;
    it itself is not, since what is placed in it may lock it.
    """

    def __init__(self) -> None:
        _remove_left()
        around = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = contextlib.ExitStack()
        with contextlib.suppress(OSError):  # a file system that knows no locks, or the next command was quicker
            lock.enter_context(locked(around, wait=False))
        self._end = weakref.finalize(self, _remove, around, lock, os.getpid())
        self.path = around / "files"
        self.path.mkdir(mode=0o700)

    def cleanup(self) -> None:
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.cleanup()


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """With the folder's lock, which the kernel takes from a process that dies. Raises BlockingIOError where another has it and
    it is not to be waited for."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # a user's folder may be a link
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all in it, whoever filled it: no link is followed, nothing of it is opened, folders that are closed
    to this user are opened up, and no depth is too much. What cannot be removed stays."""
    if os.rename not in os.supports_dir_fd:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        _open_up(os.fspath(folder))
        top = os.open(folder, _FOLDER)
        try:
            while _clear(top):
                pass
        finally:
            os.close(top)
        os.rmdir(folder)


def _clear(top: int) -> bool:
    """Remove the folder's files and folders; what lies in these is taken up into it first, so that no path gets long. Whether
    anything was removed."""
    done = False
    for name in os.listdir(top):
        with contextlib.suppress(OSError):
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                done = True
                continue
            _open_up(name, top)
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                for below in os.listdir(inner):
                    if _is_folder(below, inner):
                        _open_up(below, inner)  # whose entry for the folder above changes
                        os.rename(below, secrets.token_hex(8), src_dir_fd=inner, dst_dir_fd=top)
                    else:
                        os.unlink(below, dir_fd=inner)
                    done = True
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
            done = True
    return done


def _is_folder(name: str, above: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


def _open_up(name: str, above: int | None = None) -> None:
    """Let this user list and change a folder; never what a link leads to."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=above, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)


def _remove(folder: Path, lock: contextlib.ExitStack, owner: int) -> None:
    if os.getpid() == owner:  # a fork has the object too, and not the folder
        remove_tree(folder)
    lock.close()


_LOOKED: set[str] = set()


def _remove_left() -> None:
    """Remove what killed processes of this user left, once in the life of this one."""
    place = tempfile.gettempdir()
    if fcntl is None or place in _LOOKED:
        return
    _LOOKED.add(place)
    for name in filter(_NAME.fullmatch, os.listdir(place)):
        folder = Path(place, name)
        with contextlib.suppress(OSError):  # another process was first
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or time.time() - found.st_ctime < _JUST_MADE:
                continue
            with locked(folder, wait=False):
                remove_tree(folder)
