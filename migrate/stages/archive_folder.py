"""A model archive of TorchServe as a repository: unpacked where nothing in it can reach beyond its folder."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ...errors import MigrateError
from ..survey.model_archives import MANIFEST

SUFFIXES = (".mar", ".tar.gz", ".tgz")
HANDLER = "headrace_handler.py"
"""The file by which a handler of TorchServe's own is called, where an archive names one."""
_OWN = {"image_classifier": "ImageClassifier", "vision_handler": "VisionHandler", "base_handler": "BaseHandler"}
_MOST_MEMBERS = 20_000
_MOST_MANIFEST = 1 << 20
_LEAST_BYTES = 1 << 30
_MOST_TIMES = 100
"""An archive may unpack to a gigabyte, or to so many times its own size: weights hardly shrink, and a bomb does."""
_CHUNK = 1 << 20
# What the readers of both kinds raise for bytes that are not as they were written, those of compressed members included.
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError)


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    kind: str
    """ "file", "folder", or what else it is, in words."""
    source: Any


def is_archive(path: Path) -> bool:
    """Whether it is a file of the form that `torch-model-archiver` writes, by its name."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def unpacked(archive: Path, folder: Path) -> str:
    """Unpack an archive into `folder`, which must not be there, and give the path in it of the script that is to be run.

    A handler of TorchServe's own gets a file that calls it. Raises MigrateError, and leaves no folder, for what is no such
    archive and for members that lead out of it, are links or devices, come twice, or unpack to more than can be meant.
    """
    try:
        with _opened(archive) as (members, read):
            _check(archive, members)
            packed = archive.stat().st_mtime
            folder.mkdir(parents=True)
            for member in members:
                target = folder / member.name
                if member.kind == "folder":
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with read(member.source) as source, target.open("xb") as file:
                    _copy(archive, member, source, file)
                os.utime(target, (packed, packed))  # what a run finds there was there before
        return _entry(archive, folder)
    except _DAMAGED as error:
        shutil.rmtree(folder, ignore_errors=True)
        reason = str(error).partition("\n")[0].removesuffix(":")  # tarfile lists every kind of compression below
        raise MigrateError(f"{archive} cannot be unpacked: it is damaged, or no zip or tar file ({reason})") from error
    except (OSError, NotImplementedError, RuntimeError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise MigrateError(f"{archive} cannot be unpacked: {error}") from error
    except MigrateError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class _opened:  # noqa: N801 - used as a function
    """The members of an archive, and what opens one of them."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive

    def __enter__(self) -> tuple[list[_Member], Any]:
        if zipfile.is_zipfile(self._archive):
            self._file: Any = zipfile.ZipFile(self._archive)
            return [_of_zip(item) for item in self._file.infolist()[: _MOST_MEMBERS + 1]], self._file.open
        self._file = tarfile.open(self._archive)
        members = []
        for item in self._file:
            members.append(_of_tar(item))
            if len(members) > _MOST_MEMBERS or sum(member.size for member in members) > _most(self._archive):
                break
        return members, self._file.extractfile

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _of_zip(item: zipfile.ZipInfo) -> _Member:
    mode = item.external_attr >> 16
    kind = "folder" if item.is_dir() else "file"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "a link" if stat.S_ISLNK(mode) else "a special file"
    if item.flag_bits & 1:
        kind = "encrypted"
    return _Member(item.orig_filename, item.file_size, kind, item)


def _of_tar(item: tarfile.TarInfo) -> _Member:
    kind = (
        "file" if item.isreg() else "folder" if item.isdir() else "a link" if item.issym() or item.islnk() else "a special file"
    )
    return _Member(item.name, item.size, kind, item)


def _most(archive: Path) -> int:
    return max(_LEAST_BYTES, _MOST_TIMES * archive.stat().st_size)


def _check(archive: Path, members: list[_Member]) -> None:
    if len(members) > _MOST_MEMBERS:
        raise MigrateError(f"{archive} is refused: it has more than {_MOST_MEMBERS:,} files")
    seen: set[str] = set()
    files: set[str] = set()
    total = 0
    for member in members:
        name = member.name
        parts = PurePosixPath(name).parts
        if not parts or name.startswith(("/", "\\")) or ".." in parts or "\\" in name or "\0" in name or ":" in parts[0]:
            raise MigrateError(f"{archive} is refused: its member {name!r} leads out of the archive's folder")
        if member.kind not in ("file", "folder"):
            raise MigrateError(
                f"{archive} is refused: its member {name!r} is {member.kind}, and only files and folders are taken"
            )
        place = "/".join(parts)
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if (place in seen and member.kind == "file") or place in files or above & files:
            raise MigrateError(f"{archive} is refused: its member {name!r} comes twice")
        seen.add(place)
        files |= {place} if member.kind == "file" else set()
        total += member.size
        if total > _most(archive):
            raise MigrateError(
                f"{archive} is refused: up to its member {name!r} it unpacks to {total:,} bytes, more than {_MOST_TIMES} "
                f"times its own size and than {_LEAST_BYTES:,}"
            )
    free = shutil.disk_usage(archive.parent).free
    if total > free:
        raise MigrateError(f"{archive} unpacks to {total:,} bytes, and {free:,} are free")


def _copy(archive: Path, member: _Member, source: IO[bytes], file: IO[bytes]) -> None:
    """What a member holds; never more than it says."""
    left = member.size
    while chunk := source.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise MigrateError(f"{archive} is refused: its member {member.name!r} holds more than it says")
        file.write(chunk)


def _entry(archive: Path, folder: Path) -> str:
    """The script that a manifest leads to."""
    found = [
        path for path in (folder, *sorted(item for item in folder.iterdir() if item.is_dir())) if (path / MANIFEST).is_file()
    ]
    if not found:
        raise MigrateError(f"{archive} is no model archive: {MANIFEST} is missing in it")
    root = found[0]
    path = root / MANIFEST
    if path.stat().st_size > _MOST_MANIFEST:
        raise MigrateError(f"{archive}: {MANIFEST} is larger than {_MOST_MANIFEST:,} bytes")
    try:
        handler = json.loads(path.read_bytes())["model"]["handler"]
        name = handler.partition(":")[0]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MigrateError(f"{archive}: {MANIFEST} names no handler ({type(error).__name__}: {error})") from None
    own = name if name.endswith(".py") else f"{name}.py"
    if "/" not in name and (root / own).is_file():
        return (root / own).relative_to(folder).as_posix()
    if name not in _OWN:
        raise MigrateError(
            f"{archive}: its handler {name!r} is neither a file of the archive nor one of TorchServe's for images "
            f"({', '.join(_OWN)}), so there is no image classification to migrate"
        )
    kind = _OWN[name]
    text = (
        f'"""What torch-model-archiver --handler {name} packed, as a class of its own: TorchServe\'s {kind}."""\n\n'
        f"from ts.torch_handler.{name} import {kind}\n\n\nclass Handler({kind}):\n    pass\n"
    )
    if os.path.lexists(root / HANDLER):
        raise MigrateError(f"{archive} has a file {HANDLER} of its own, where the handler {name} would be written")
    (root / HANDLER).write_text(text, encoding="utf-8")
    return (root / HANDLER).relative_to(folder).as_posix()
