"""Whose code may run with the rights of whoever runs a command, where no sandbox is around it; and whose files are taken."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
VARIABLE = "HEADRACE_TRUST_REPOSITORY"
REMEDY = f"where you trust whom it is from, say --trust-repository (or set {VARIABLE}=1)"


def is_trusted(asked: bool = False) -> bool:
    """Whether somebody said so: by the flag, or by the variable, as where a container is the wall."""
    return asked or os.environ.get(VARIABLE) == "1"


def own_folder(path: Path) -> Path:
    """The same folder, made where it is missing. What lies in it is served, opened and run, so it must be this user's alone.

    Raises PermissionError for a link, and for a folder of somebody else's, who could have written what would be found.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.mkdir(mode=0o700, exist_ok=True)
    check_own(path)
    if hasattr(os, "getuid") and path.lstat().st_mode & _OTHERS_WRITE:
        path.chmod(0o700)  # made by an earlier version, under a umask that lets a group write
    return path


def check_own(path: Path) -> None:
    """Raise PermissionError for a link, and for what belongs to somebody else; OSError where there is nothing."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        raise PermissionError(
            0,
            "it is a link, or belongs to another user, who could have put anything there; remove it, or name a cache folder "
            "of this user's own (HEADRACE_CACHE)",
            str(path),
        )


def open_regular(path: Path, *, links: bool = True) -> BinaryIO:
    """Open a file to read, without waiting for a pipe's writer or asking a device; without `links`, also none that appears
    meanwhile. Raises OSError, for a special file too."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if links else getattr(os, "O_NOFOLLOW", 0))
    handle = os.open(path, flags)
    found = os.fstat(handle).st_mode
    if not stat.S_ISREG(found):
        os.close(handle)
        code = errno.EISDIR if stat.S_ISDIR(found) else errno.EINVAL
        raise OSError(code, "it is a folder" if stat.S_ISDIR(found) else "it is not a regular file", str(path))
    return os.fdopen(handle, "rb")
