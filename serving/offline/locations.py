"""Files by path or by address: this machine's, or an object store's through fsspec."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from ...errors import ClassifyError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif")
"""What the names of files that are images end in, in small letters."""

_GO_ON = "the same command goes on, once that is put right"
# A request to an object store that fails is tried again after so many seconds each.
_PAUSES = (0.2, 1.0, 5.0)
# What file systems say of a file's version, the surest first.
_STAMPS = (
    "etag", "ETag", "md5Hash", "content_md5", "md5", "sha256", "crc32c", "mtime", "LastModified", "last_modified", "updated",
    "created",
)  # fmt: skip


# What reading fails with where no file is to blame: limits of the machine, and a file system or network that is gone.
_LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_LOST = frozenset(
    (
        errno.ESTALE, errno.ENOTCONN, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV,
        errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET,
    )
)  # fmt: skip


class UnreadableError(Exception):
    """A file cannot be read; the message says why without naming where it lies."""


class Presence:
    """A source that is there, as it was when this was made, until `close`. `base` is the folder that the names of its files
    begin in. Raises ClassifyError when a folder of this machine is gone already."""

    def __init__(self, source: str, base: str) -> None:
        self._source, self._base = source, base
        self._folder: int | None = None
        if not is_remote(base):
            # An open one keeps its number, which file systems in user space give to another otherwise.
            try:
                self._folder = os.open(base, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise ClassifyError(f"cannot read {base}: {error.strerror}; {_GO_ON}") from error

    def check(self) -> None:
        """What cannot be read may be the file's own fault, unless this raises ClassifyError: the source is gone, or another
        was mounted in its place."""
        if self._folder is not None:
            try:
                there = os.path.samestat(os.stat(self._base), os.fstat(self._folder))
            except OSError:
                there = False
            present = there and os.path.exists(self._source)
        else:
            system, path = _system(self._source)
            try:
                system.invalidate_cache()  # which knows what was there
                present = system.exists(path)
            except Exception as error:  # whatever the store's client raises
                raise ClassifyError(f"{self._source} cannot be reached any more: {_reason(error)}; {_GO_ON}") from error
        if not present:
            raise ClassifyError(f"{self._source} is gone, or something else is in its place; {_GO_ON}")

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            os.close(self._folder)


def raise_if_lost(error: BaseException | None, location: str, *, archive: bool = False) -> None:
    """Raises ClassifyError for an error of the machine, or of a file system that is gone: the next file would meet it too.

    That a single address does not answer is a matter between it and its host; an `archive` may have been read in part.
    """
    if not isinstance(error, OSError):
        return
    lost = error.errno in _LOST or isinstance(error, (ConnectionError, TimeoutError))
    if error.errno in _LIMITS or (lost and (archive or not is_remote(location))):
        raise ClassifyError(f"nothing can be read now ({_reason(error)}); {_GO_ON}") from error


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file: where it is, its name below the source with "/" between folders, its bytes, and what tells its version."""

    location: str
    name: str
    size: int
    stamp: str


def is_remote(location: str) -> bool:
    """Whether it is an address such as s3://bucket/key, which fsspec opens."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.replace("+", "").replace(":", "").isalnum()


def join(folder: str, name: str) -> str:
    """A file's location from a folder's and a name below it, which may be a path or an address of its own."""
    if is_remote(name) or os.path.isabs(name):
        return name
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else os.path.join(folder, name)


def parent(location: str) -> str:
    """The folder a file lies in."""
    return location.rpartition("/")[0] if is_remote(location) else os.path.dirname(os.path.abspath(location))


def is_folder(location: str) -> bool:
    """Whether it is a folder. Raises ClassifyError when there is nothing there."""
    if not is_remote(location):
        try:
            return stat.S_ISDIR(os.stat(location).st_mode)
        except OSError as error:
            raise ClassifyError(f"cannot read {location}: {error.strerror or error}; name what is to be classified") from error
    system, path = _system(location)
    try:
        if system.isdir(path):
            return True
        if system.exists(path):
            return False
    except Exception as error:  # whatever the store's client raises
        raise ClassifyError(f"cannot look at {location}: {error}") from error
    raise ClassifyError(f"there is nothing at {location}; check the address and the store's credentials")


def describe(location: str, name: str) -> Found:
    """A file's size and version; size -1 and no stamp where it cannot be looked at."""
    try:
        if not is_remote(location):
            return _local(location, name)
        system, path = _system(location)
        return _remote(location, name, system.info(path))
    except Exception:  # noqa: BLE001 - it becomes a row that says so when it is read
        return Found(location=location, name=name, size=-1, stamp="")


def walk(folder: str, *, without: str = "") -> Iterator[Found]:
    """Every file below a folder in an order that depends on names alone; hidden ones and the folder `without` are left out."""
    if is_remote(folder):
        yield from _walk_remote(folder)
    else:
        yield from _walk_local(folder, "", os.path.realpath(without) if without else "")


def open_file(location: str) -> IO[bytes]:
    """The file to read from, seekable. Raises UnreadableError."""
    try:
        if not is_remote(location):
            return _open_local(location)
        system, path = _system(location)
        return system.open(path, "rb")
    except Exception as error:  # noqa: BLE001 - whatever the store's client raises
        cause = _cause(error)
        raise UnreadableError(_reason(cause)) from cause


def _cause(error: Exception) -> BaseException:
    """What fsspec, which calls every failure over HTTP a FileNotFoundError, made that of."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
    gone = isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) in (404, 410)
    return error if cause is None or gone else cause


def _open_local(location: str) -> IO[bytes]:
    # Opening a pipe with a name would wait for somebody who writes to it.
    descriptor = os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file")
    return os.fdopen(descriptor, "rb")


def read_file(location: str, limit: int) -> bytes:
    """A file's bytes. Raises UnreadableError, also for more than `limit` bytes; what an object store refuses is tried again."""
    if not is_remote(location):
        return _read_once(location, limit)
    for pause in _PAUSES:
        try:
            return _read_once(location, limit)
        except UnreadableError as error:
            if isinstance(error.__cause__, FileNotFoundError) or error.__cause__ is None:
                raise
        time.sleep(pause)
    return _read_once(location, limit)


def _read_once(location: str, limit: int) -> bytes:
    with open_file(location) as file:
        try:
            data = file.read(limit + 1)
        except Exception as error:  # as above
            raise UnreadableError(_reason(error)) from error
    if len(data) > limit:
        raise UnreadableError(f"the file has more than {limit} bytes")
    return data


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "No such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"


def _walk_local(folder: str, prefix: str, without: str) -> Iterator[Found]:
    try:
        with os.scandir(folder) as scanned:
            entries = sorted((entry for entry in scanned if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise ClassifyError(f"cannot read {folder}: {error.strerror or error}") from error
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not without or os.path.realpath(entry.path) != without:
                yield from _walk_local(entry.path, f"{name}/", without)
            continue
        try:
            found = _local(entry.path, name)
        except OSError:
            if os.path.isdir(entry.path):  # a link to a folder
                continue
            # A link to nowhere may stand for an image, as those do whose data git-annex has elsewhere: its row says so.
            found = Found(location=entry.path, name=name, size=0, stamp="")
        yield found


def _local(location: str, name: str) -> Found:
    status = os.stat(location)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{name} is not a file")
    return Found(location=location, name=name, size=status.st_size, stamp=str(status.st_mtime_ns))


def _walk_remote(folder: str) -> Iterator[Found]:
    system, root = _system(folder)
    try:
        listed = system.find(root, detail=True)
    except Exception as error:  # as above
        raise ClassifyError(f"cannot list {folder}: {error}") from error
    root = root.rstrip("/")
    for path in sorted(listed):
        name = path[len(root) :].lstrip("/")
        if not any(part.startswith(".") for part in name.split("/")):
            yield _remote(system.unstrip_protocol(path), name, listed[path])


def _remote(location: str, name: str, info: dict[str, Any]) -> Found:
    stamp = next((str(info[key]) for key in _STAMPS if info.get(key)), "")
    return Found(location=location, name=name, size=int(info.get("size") or 0), stamp=_short(stamp))


def _short(stamp: str) -> str:
    return stamp if len(stamp) <= 64 else hashlib.sha256(stamp.encode()).hexdigest()


def _system(location: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise ClassifyError(f"{location} needs fsspec: pip install fsspec, and s3fs, gcsfs or adlfs for its store") from None
    try:
        return fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:  # fsspec names the package to install, or the unknown protocol
        raise ClassifyError(f"cannot open {location}: {error}") from error
