"""Write a repository's files in place so that they can be given back: all or none, whenever the process ends, and undone later.

    .headrace/.gitignore             "*"
    .headrace/lock                   held while files change
    .headrace/models/                the packaged models
    .headrace/journal/0001/          one write; made complete aside, then renamed to this name before the first file changes
        record.json                  {"schema", "files": [{"path", "before", "after"}], "models"}; digests are SHA-256
        before/N  after/N            the old bytes with their mode and times; the new ones until they are renamed into place
        done | undoing               set when all files are new; when an undo began

A file only changes by a rename, so each is old or new at every moment. An entry without `done`, or with `undoing`, is work that
was interrupted: the next command gives every file its old bytes. A repository is hostile until proved otherwise, so a journal
that comes with one is not believed: paths that lead out of the repository, and folders that are links, are refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import MigrateError
from ..rewriting.rewrite import Change

FOLDER = ".headrace"
SCHEMA = 1
_NEW, _GONE = "new", "gone"


def models_in_place(root: Path) -> Path:
    """Where `--write` puts the packaged models."""
    return root / FOLDER / "models"


def write_in_place(root: Path, changes: Sequence[Change], models: Path | None = None) -> list[str]:
    """Write the changed files and put the folder `models` in its place; the paths written, links followed. Without a changed
    file nothing is done.

    Raises MigrateError, with nothing changed, where a file is not as it was read, is a link out of the repository, or cannot
    be written. Whatever else ends this call before its end, KeyboardInterrupt too, leaves the old files.
    """
    root = root.resolve()
    wanted = _targets(root, [change for change in changes if change.changed])
    if not wanted:
        return []
    with _exclusive(root) as journal:
        entry = _prepare(root, journal, wanted, models)
        try:
            for number, file in enumerate(_files(root, entry)):
                _put(entry / "after" / str(number), root / file.path)
            if models is not None:
                place = models_in_place(root)
                if place.exists():
                    place.rename(entry / "models.before")
                (entry / "models").rename(place)
            _flush_folders({(root / path).parent for path in wanted} | {root / FOLDER})
            _mark(entry, "done")
        except OSError as error:
            _restore(root, journal, entry)
            raise MigrateError(f"cannot write in place: {_reason(error)}; the files are as they were") from error
        except BaseException:
            if entry.exists() and not _finished(entry):
                _restore(root, journal, entry)
            raise
        return list(wanted)


def undo(root: Path) -> list[str]:
    """Give back the bytes, modes and times from before the last write in place; the paths that were given back.

    Raises MigrateError, with nothing changed, where there is nothing to undo or files changed since, which are named.
    """
    root = root.resolve()
    if not root.is_dir():
        raise MigrateError(f"{root} is not a folder; name the repository that headrace migrate --write changed")
    if not (root / FOLDER).exists():
        raise MigrateError(f"nothing to undo: headrace migrate --write has not written to {root}")
    with _exclusive(root) as journal:
        entries = _entries(journal)
        if not entries:
            raise MigrateError(f"nothing to undo: every write to {root} was undone already")
        entry = entries[-1]
        files = _files(root, entry)
        changed = [file.path for file in files if _digest(root / file.path) != file.after]
        if changed:
            raise MigrateError(
                "not undone, because these files changed since headrace migrate --write: "
                f"{', '.join(changed)}; put their changes aside first, or take single files from {entry / 'before'}"
            )
        _mark(entry, "undoing")
        _restore(root, journal, entry)
        return [file.path for file in files]


def recover(root: Path) -> list[str]:
    """Finish what an interrupted write or undo left: its files get their old bytes. The paths; none when all was in order."""
    root = root.resolve()
    journal = root / FOLDER / "journal"
    if not os.path.lexists(root / FOLDER):
        return []
    names = set(os.listdir(journal)) if journal.is_dir() else set()
    if names and not names & {_NEW, _GONE} and all(_finished(entry) for entry in _entries(journal)):
        return []
    with _exclusive(root, recovering=False) as journal:
        return _recover(root, journal)


@dataclass(frozen=True)
class _File:
    path: str
    before: str
    after: str


def _targets(root: Path, changes: Sequence[Change]) -> dict[str, Change]:
    """Real path, relative to the repository -> its change. A link and the file that it leads to are one."""
    wanted: dict[str, Change] = {}
    for change in sorted(changes, key=lambda change: (root / change.path).is_symlink()):
        real = (root / change.path).resolve()
        if not real.is_relative_to(root):
            raise MigrateError(f"{change.path} is a link to {real}, out of the repository; use --out DIR, or replace the link")
        wanted.setdefault(real.relative_to(root).as_posix(), change)
    stale = [path for path, change in wanted.items() if _read(root / path) != change.before]
    if stale:
        raise MigrateError(f"these files changed while they were migrated: {', '.join(stale)}; run headrace migrate again")
    return wanted


def _prepare(root: Path, journal: Path, wanted: dict[str, Change], models: Path | None) -> Path:
    """The complete journal entry of a write that has not begun."""
    new = journal / _NEW
    number = max([int(entry.name) for entry in _entries(journal)], default=0) + 1
    try:
        for name in ("before", "after"):
            (new / name).mkdir(parents=True)
        files = []
        for index, (path, change) in enumerate(wanted.items()):
            old, made = new / "before" / str(index), new / "after" / str(index)
            for place, data in ((old, change.before), (made, change.after)):
                place.write_bytes(data)
                _copy_attributes(root / path, place)
            now = time.time_ns()
            os.utime(made, ns=(now, now))
            files.append({"path": path, "before": _hash(change.before), "after": _hash(change.after)})
        if models is not None:
            shutil.copytree(models, new / "models", symlinks=True)
        record = {"schema": SCHEMA, "files": files, "models": models is not None}
        (new / "record.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for folder, _, names in os.walk(new):
            for name in names:
                _flush(Path(folder, name))
            _flush(Path(folder))
        entry = journal / f"{number:04}"
        new.rename(entry)
        _flush(journal)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise MigrateError(f"cannot prepare the journal in {journal}: {_reason(error)}; nothing was changed") from error
    return entry


def _restore(root: Path, journal: Path, entry: Path) -> list[str]:
    """Give every file of an entry its old bytes and drop the entry; can be interrupted and begun again at any point."""
    files = _files(root, entry)
    now = [_digest(root / file.path) for file in files]
    foreign = [file.path for file, digest in zip(files, now, strict=True) if digest not in (file.before, file.after)]
    if foreign:
        raise MigrateError(
            f"an interrupted write left these files, which changed since: {', '.join(foreign)}; their old bytes are in "
            f"{entry / 'before'}: bring the files in order, then remove {entry}"
        )
    for number, (file, digest) in enumerate(zip(files, now, strict=True)):
        if digest != file.before:
            kept = entry / "before" / str(number)
            if _digest(kept) != file.before:
                raise MigrateError(f"{kept} is damaged, so {file.path} cannot be given back; take it from version control")
            _put(kept, root / file.path)
    place = models_in_place(root)
    if _record(entry).get("models") and not (entry / "models").exists() and place.exists():
        place.rename(entry / "models")
    if (entry / "models.before").exists():
        (entry / "models.before").rename(place)
    _flush_folders({(root / file.path).parent for file in files} | {root / FOLDER})
    entry.rename(journal / _GONE)
    shutil.rmtree(journal / _GONE, ignore_errors=True)
    return [file.path for file, digest in zip(files, now, strict=True) if digest != file.before]


def _recover(root: Path, journal: Path) -> list[str]:
    for leftover in (_NEW, _GONE):
        shutil.rmtree(journal / leftover, ignore_errors=True)
        if os.path.lexists(journal / leftover):
            raise MigrateError(f"{journal / leftover} cannot be removed; remove it")
    restored: list[str] = []
    for entry in reversed(_entries(journal)):
        if not _finished(entry):
            restored += _restore(root, journal, entry)
    return restored


def _entries(journal: Path) -> list[Path]:
    """The writes, oldest first."""
    folders = (path for path in journal.iterdir() if re.fullmatch("[0-9]{4,18}", path.name) and not path.is_symlink())
    return sorted((path for path in folders if path.is_dir()), key=lambda path: int(path.name))


def _finished(entry: Path) -> bool:
    return (entry / "done").exists() and not (entry / "undoing").exists()


def _record(entry: Path) -> dict[str, Any]:
    try:
        record = json.loads((entry / "record.json").read_text(encoding="utf-8"))
        if any((entry / name).is_symlink() for name in ("record.json", "before", "after", "models", "models.before")):
            raise ValueError("it holds links")
        if record["schema"] != SCHEMA:
            raise MigrateError(f"{entry} was written by another version of headrace; undo it with that one")
        return dict(record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MigrateError(
            f"{entry} is no journal that headrace wrote ({error}); remove it if nothing is to be undone"
        ) from None


def _files(root: Path, entry: Path) -> list[_File]:
    """The files of an entry. Raises MigrateError where one lies outside the repository."""
    try:
        files = [_File(str(file["path"]), str(file["before"]), str(file["after"])) for file in _record(entry)["files"]]
    except (KeyError, TypeError) as error:
        raise MigrateError(f"{entry} is no journal that headrace wrote ({error}); remove it") from None
    for file in files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or (root / path).parent.resolve() != (root / path).parent:
            raise MigrateError(f"{entry} names {file.path!r}, outside the repository; headrace did not write it: remove it")
    return files


@contextlib.contextmanager
def _exclusive(root: Path, *, recovering: bool = True) -> Iterator[Path]:
    """The journal's folder, ours alone; what was interrupted is finished first. An emptied `.headrace` goes away."""
    folder, journal = root / FOLDER, root / FOLDER / "journal"
    for path in (folder, journal):
        if path.is_symlink():
            raise MigrateError(f"{path} is a link, and headrace keeps its journal in a folder of its own; remove it")
    try:
        journal.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as file:
            file.write("*\n")
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise MigrateError(f"cannot keep a journal in {folder}: {_reason(error)}; nothing was changed") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink == 0:  # the other one has just ended, and removed the folder
                raise BlockingIOError
        except BlockingIOError:
            raise MigrateError(f"another headrace is writing to {root}; wait for its end and run this again") from None
        try:
            if recovering:
                _recover(root, journal)
            yield journal
        except OSError as error:
            raise MigrateError(
                f"{_reason(error)}; the next headrace migrate or undo puts in order what is half done"
            ) from error
        finally:
            if not _entries(journal) and not models_in_place(root).exists():
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _put(source: Path, target: Path) -> None:
    """Rename into place; where another file system is mounted inside the repository, copy beside the target first."""
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target.with_name(f".{target.name}.headrace-new")
        shutil.copyfile(source, beside, follow_symlinks=False)
        _copy_attributes(source, beside)
        _flush(beside)
        beside.replace(target)


def _copy_attributes(source: Path, target: Path) -> None:
    """Mode, times, extended attributes, and the owner where we may."""
    status = source.stat()
    with contextlib.suppress(PermissionError):
        os.chown(target, status.st_uid, status.st_gid)
    shutil.copystat(source, target)


def _mark(entry: Path, name: str) -> None:
    (entry / f"{name}.new").write_bytes(b"")
    _flush(entry / f"{name}.new")
    (entry / f"{name}.new").rename(entry / name)
    _flush(entry)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_folders(folders: set[Path]) -> None:
    for folder in folders:
        _flush(folder)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _digest(path: Path) -> str | None:
    """None for what is no plain file, or not there."""
    if path.is_symlink() or not path.is_file():
        return None
    data = _read(path)
    return None if data is None else _hash(data)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: OSError) -> str:
    return f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
