"""What a library compiled a graph into, kept in the cache for the next start. Torch-free.

Libraries read such files with less care than graphs, so one is used only where nobody but this user can have written it, and
where it is whole: of the key it is asked for by, with its digest. What is wrong costs a compilation, never an answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import mmap
import os
import re
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.atomic import aside
from ...base.cache_folder import cache_folder
from ...base.fingerprint import fingerprint

log = logging.getLogger("headrace.cache")

HEAD = 4096
"""Where in a mapped file begins what the library wrote: on a page of its own."""

_MAGIC = "headrace compiled 1"
_KEY = re.compile("[0-9a-f]{64}")
_MOST_ENTRIES, _MOST_BYTES, _LARGEST = 32, 2 << 30, 1 << 30
_STALE_SECONDS = 3600.0  # what a writer left that died
_CHUNK = 1 << 20
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_writing = threading.Lock()


def key_of(files: Sequence[Path], facts: Mapping[str, Any]) -> str:
    """A digest of all that the compiled form depends on: the files' contents, `facts`, this machine and its versions."""
    total = hashlib.sha256(json.dumps([facts, fingerprint()], sort_keys=True, default=str).encode())
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def look_up(key: str) -> mmap.mmap | None:
    """The file kept under that key, mapped; None where there is none that may be used."""
    folder = _folder()
    if folder is None:
        return None
    try:
        _check(folder.lstat(), folder, stat.S_ISDIR)
        handle = os.open(folder / key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("what was compiled before is not used: %s", error)
        return None
    try:
        found = os.fstat(handle)
        _check(found, folder / key, stat.S_ISREG)
        if not HEAD < found.st_size <= HEAD + _LARGEST:
            raise ValueError(f"{folder / key} has {found.st_size:,} bytes")
        # Private: the library asks for memory that could be written, and what is written would not reach the file.
        mapped = mmap.mmap(handle, found.st_size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        with memoryview(mapped) as whole:
            if whole[:HEAD] != _head(key, whole[HEAD:]):
                raise ValueError(f"{folder / key} is not as it was written")
        os.utime(handle)
        return mapped
    except (OSError, ValueError) as error:
        log.warning("what was compiled before is not used, and removed: %s", error)
        drop(key)
        return None
    finally:
        os.close(handle)


def store(key: str, data: memoryview) -> mmap.mmap | None:
    """Keep it for later processes, dropping what was longest unused; mapped as `look_up` gives it, or None."""
    folder = _folder()
    if folder is None or not 0 < len(data) <= _LARGEST:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _writing, aside(folder, key) as (path,):
            try:
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
                    file.write(_head(key, data))
                    file.write(data)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        _prune(folder, key)
    except OSError as error:
        log.info("what was compiled is not kept: %s", error)
        return None
    return look_up(key)


def drop(key: str) -> None:
    """Remove what is kept under that key."""
    if (folder := _folder()) is not None:
        with contextlib.suppress(OSError):
            (folder / key).unlink()


def _folder() -> Path | None:
    """None where the cache is turned off, or files have no owner, as on Windows."""
    folder = cache_folder()
    return None if folder is None or not hasattr(os, "getuid") else folder / "compiled"


def _check(found: os.stat_result, path: Path, kind: Any) -> None:
    """Raises ValueError for what somebody else may have written."""
    if not kind(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS_WRITE:
        raise ValueError(f"{path} must be this user's own, no link, and writable by nobody else")


def _head(key: str, data: memoryview) -> bytes:
    total = hashlib.sha256(key.encode())
    for at in range(0, len(data), _CHUNK):
        total.update(data[at : at + _CHUNK])
    return f"{_MAGIC} {key} {total.hexdigest()}\n".encode().ljust(HEAD, b"\0")


def _prune(folder: Path, newest: str) -> None:
    """Drop what was longest unused, and what dead writers left; other names are not ours."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process prunes as well
            about = path.lstat()
            if _KEY.fullmatch(path.name):
                entries.append((path.name != newest, -about.st_mtime, path, about.st_size))
            elif path.name.startswith(".") and _KEY.search(path.name) and time.time() - about.st_mtime > _STALE_SECONDS:
                path.unlink()
    size = 0
    for index, (_, _, path, own) in enumerate(sorted(entries)):
        size += own
        if index and (index >= _MOST_ENTRIES or size > _MOST_BYTES):
            with contextlib.suppress(OSError):
                path.unlink()
