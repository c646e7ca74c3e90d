"""Files of a folder that is not trusted: reached by descriptors from its root, never through a link, never inside `.git`."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ...errors import MigrateError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in a file's place must not be waited for
_NOT_OURS = (".git", "git~1")


def checked(path: str) -> PurePosixPath:
    """The path, where it names a file that may be written. Raises MigrateError."""
    parts = path.split("/")
    if not all(part and part not in (".", "..") for part in parts) or "\0" in path:
        raise MigrateError(f"{path!r} lies outside the repository, where headrace writes nothing")
    if any(part.casefold() in _NOT_OURS for part in parts):
        raise MigrateError(f"{path!r} lies in .git, where headrace writes nothing")
    return PurePosixPath(path)


class TreeFiles:
    """What lies at relative paths below `root`. Raises OSError (ELOOP, ENOTDIR) where a link stands in the way."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextlib.contextmanager
    def folder(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of a path's folder, and the path's name in it."""
        at = checked(path)
        handle = os.open(self._root, _FOLDER)
        try:
            for part in at.parts[:-1]:
                inner = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle, at.name
        finally:
            os.close(handle)

    def read(self, path: str) -> bytes | None:
        """None for what is no plain file, cannot be read, or is not there."""
        with contextlib.suppress(OSError), self.folder(path) as (folder, name), _opened(name, os.O_RDONLY, folder) as file:
            return _bytes(file)
        return None

    def keep(self, path: str, place: Path) -> bytes:
        """Copy a file with its attributes to `place`, outside; its bytes."""
        with (
            self.folder(path) as (folder, name),
            _opened(name, os.O_RDONLY, folder) as source,
            _opened(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as target,
        ):
            data = _bytes(source)
            _fill(target, data)
            _copy_attributes(os.fstat(source), source, target)
            os.fsync(target)
            return data

    def stage(self, path: str, aside: str, data: bytes, like: Path | None = None) -> None:
        """Write `data` beside a file under the new name `aside`, with the attributes of that file, or of `like`."""
        with (
            self.folder(path) as (folder, name),
            _opened(like, os.O_RDONLY) if like is not None else _opened(name, os.O_RDONLY, folder) as source,
            _opened(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder) as target,
        ):
            _fill(target, data)
            _copy_attributes(os.fstat(source), source, target)
            if like is None:
                os.utime(target)
            os.fsync(target)

    def put(self, path: str, aside: str) -> None:
        """Rename what was staged into the file's place."""
        with self.folder(path) as (folder, name):
            os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def drop(self, path: str, aside: str) -> None:
        """Remove what was staged, where it is still there."""
        with contextlib.suppress(FileNotFoundError), self.folder(path) as (folder, _):
            os.stat(aside, dir_fd=folder, follow_symlinks=False)  # a read-only file system refuses before it looks
            os.unlink(aside, dir_fd=folder)


@contextlib.contextmanager
def _opened(name: str | Path, flags: int, folder: int | None = None) -> Iterator[int]:
    handle = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{name} is no plain file")
        yield handle
    finally:
        os.close(handle)


def _bytes(handle: int) -> bytes:
    with os.fdopen(handle, "rb", closefd=False) as file:
        return file.read()


def _fill(handle: int, data: bytes) -> None:
    with os.fdopen(handle, "wb", closefd=False) as file:
        file.write(data)


def _copy_attributes(status: os.stat_result, source: int, target: int) -> None:
    """Mode, times, extended attributes, and the owner where we may."""
    with contextlib.suppress(PermissionError):
        os.fchown(target, status.st_uid, status.st_gid)
    if hasattr(os, "listxattr"):  # not on macOS
        with contextlib.suppress(OSError):
            for name in os.listxattr(source):
                os.setxattr(target, name, os.getxattr(source, name))
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
