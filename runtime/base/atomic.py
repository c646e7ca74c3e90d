"""Folders and files that appear complete or not at all: built aside, flushed, then swapped in."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from ...errors import ArtifactError, disk_fault
from ...scratch import locked

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_NEW, _OLD = ".headrace-new-", ".headrace-old-"
P = ParamSpec("P")
R = TypeVar("R")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@contextlib.contextmanager
def replacing(parent: Path, names: Sequence[str], *, remove: Sequence[str] = ()) -> Iterator[list[Path]]:
    """Give an empty folder to fill for each name, and put them all in place of `parent/name` when the block ends well.

    Until then, and if anything fails or the process dies, what stood there is untouched. Writers of one parent take turns;
    the first thing each does is to clear what a dead one left. `remove` names folders that go away with the swap.
    Raises ArtifactError when the parent cannot be written to.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with locked(parent):
            _clear_leftovers(parent)
            token = secrets.token_hex(4)
            built = [parent / f"{_NEW}{token}-{name}" for name in names]
            removed = [parent / f"{_NEW}{token}-{name}" for name in remove if (parent / name).exists()]
            try:
                for folder in built:
                    folder.mkdir()
                yield built
                for folder in built:
                    _flush(folder)
                _swap_all(built, removed, prefix=f"{_NEW}{token}-")
                flush_folder(parent)
            finally:
                for folder in (*built, *removed):
                    shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        reason = disk_fault(error) or f"{error.strerror or error} ({error.filename or parent})"
        raise ArtifactError(f"cannot write {parent / names[0]}: {reason}; nothing was changed") from error


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """The same for one file: a path in a folder of its own to write, which takes `path`'s place when the block ends well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            _clear_leftovers(path.parent)
            folder = path.parent / f"{_NEW}{secrets.token_hex(4)}"
            folder.mkdir()
            try:
                yield folder / path.name
                _flush(folder)
                (folder / path.name).replace(path)
                flush_folder(path.parent)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {path}: {disk_fault(error) or error.strerror or error}; nothing was changed"
        ) from error


def old_model_stays(function: Callable[P, R]) -> Callable[P, R]:
    """For a function that prepares files elsewhere and puts a model in its place at the very end: a disk that fails on the
    way (full, over quota, read-only, closed to this user) becomes ArtifactError with the remedy."""

    @functools.wraps(function)
    def explained(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            if (fault := disk_fault(error)) is None:
                raise
            where = fault.place or tempfile.gettempdir()
            remedy = "nothing was changed; free space there, or name another temporary folder in TMPDIR"
            raise ArtifactError(f"cannot write the model: {fault.reason} ({where}); {remedy}") from error

    return explained


def _swap_all(built: Sequence[Path], removed: Sequence[Path], *, prefix: str) -> None:
    """Put every folder in its place and take those to be removed aside; if one cannot be, undo the ones before it."""
    done: list[Path] = []
    try:
        for aside in (*built, *removed):
            target = aside.with_name(aside.name.removeprefix(prefix))
            if aside in removed:
                target.rename(aside)
            else:
                _swap_in(aside, target)
            done.append(aside)
    except OSError:
        for aside in reversed(done):
            target = aside.with_name(aside.name.removeprefix(prefix))
            if not target.exists():
                aside.rename(target)
            elif aside.exists():
                _swap_in(aside, target)
            else:
                target.rename(aside)
        raise


def _clear_leftovers(parent: Path) -> None:
    for entry in sorted((*parent.glob(f"{_NEW}*"), *parent.glob(f"{_OLD}*"))):
        if entry.name.startswith(_OLD):
            original = parent / entry.name.removeprefix(_OLD).partition("-")[2]
            if not original.exists():  # its writer died between the two renames of `_swap_in`
                entry.rename(original)
                continue
        shutil.rmtree(entry)


def _swap_in(new: Path, target: Path) -> None:
    """Rename `new` to `target`. What stood there, if anything, has the name `new` afterwards."""
    if not target.exists():
        new.rename(target)
        return
    if not _exchange(new, target):
        old = target.with_name(f"{_OLD}{secrets.token_hex(4)}-{target.name}")
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
        old.rename(new)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically (renameat2); False where the kernel, the C library or the file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _flush(folder: Path) -> None:
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            with (Path(place) / name).open("rb") as file:
                os.fsync(file.fileno())
        flush_folder(Path(place))


@contextlib.contextmanager
def library_writes(folder: Path, size: int) -> Iterator[None]:
    """For a library that writes a file of at least so many bytes in `folder` by itself, and says of a disk that does not take
    it only that something failed ("iostream error"): then OSError is raised, with the reason and the folder."""
    try:
        yield
    except Exception as error:
        largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0] if resource is not None else -1
        if not isinstance(error, OSError) and (0 <= largest < size or shutil.disk_usage(folder).free < size):
            code = errno.EFBIG if 0 <= largest < size else errno.ENOSPC
            raise OSError(code, os.strerror(code), str(folder)) from error
        raise


@contextlib.contextmanager
def aside(directory: Path, *names: str) -> Iterator[list[Path]]:
    """Paths to write instead of the files of those names, which appear when the block ends well: another process may write
    the same."""
    paths = [directory / f".{os.getpid()}-{name}" for name in names]
    yield paths
    for path, name in zip(paths, names, strict=True):
        path.replace(directory / name)


def write_aside(path: Path, data: bytes) -> None:
    """Write a file so that its name only ever stands for whole contents, which are on disk when this returns."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        flush_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Have the names in a folder on disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
