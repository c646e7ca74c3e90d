"""Write a repository's files in place so that they can be given back: all or none, whenever the process ends, and undone later.

    $XDG_STATE_HOME/headrace/              ~/.local/state/headrace by default; the user's own, mode 0700
        key                                authenticates the records; mode 0600
        repositories/DIGEST/               of the repository's real path
            lock                           held while files change
            0001/                          one write; complete before the first file of the repository changes
                record.json                its HMAC on the first line, then {"schema", "root", "token", "files", ...}
                before/N                   the old bytes with their mode and times
                done | undoing             set when all files are new; when an undo began
    REPOSITORY/.headrace/models/           the packaged models; models-TOKEN.before: those that they replaced

New bytes are written beside a file and renamed into its place, so that each is old or new at every moment. An entry without
`done`, or with `undoing`, is work that was interrupted: the next write or undo gives every file its old bytes. Nothing that
comes with a repository is believed or followed: the journal is not in it, and its files are reached as `tree_files` does.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ...errors import MigrateError
from ..rewriting.rewrite import Change
from .tree_files import TreeFiles, checked

FOLDER = ".headrace"
SCHEMA = 2
_NEW, _GONE = "new", "gone"
_MODELS = f"{FOLDER}/models"


def models_in_place(root: Path) -> Path:
    """Where `--write` puts the packaged models."""
    return root / _MODELS


def journal_folder(root: Path) -> Path:
    """Where the writes to a repository are recorded, outside of it. Raises MigrateError where there can be no such place."""
    state = _state()
    if state.resolve().is_relative_to(root.resolve()):
        raise MigrateError(f"{state} lies in the repository {root}; set XDG_STATE_HOME to a folder of yours outside of it")
    return state / "repositories" / _hash(os.fsencode(root.resolve()))[:32]


def write_in_place(root: Path, changes: Sequence[Change], models: Path | None = None) -> list[str]:
    """Write the changed files and put a copy of the folder `models` in its place; the paths written, links followed. Without a
    changed file nothing is done.

    Raises MigrateError, with nothing changed, where a file is not as it was read, is a link out of the repository, lies in
    .git, or cannot be written. Whatever else ends this call before its end, KeyboardInterrupt too, leaves the old files.
    """
    root = root.resolve()
    wanted = _targets(root, [change for change in changes if change.changed])
    if not wanted:
        return []
    with _exclusive(root) as journal:
        entry = journal.prepare(wanted, models is not None)
        try:
            journal.put(entry, [change.after for change in wanted.values()], models)
        except OSError as error:
            journal.restore(entry)
            raise MigrateError(f"cannot write in place: {_reason(error)}; the files are as they were") from error
        except BaseException:
            if entry.place.exists() and not entry.finished:
                journal.restore(entry)
            raise
        return list(wanted)


def undo(root: Path) -> list[str]:
    """Give back the bytes, modes and times from before the last write in place, finished or interrupted; the paths.

    Raises MigrateError, with nothing changed, where there is nothing to undo or files changed since, which are named.
    """
    root = root.resolve()
    if not root.is_dir():
        raise MigrateError(f"{root} is not a folder; name the repository that headrace migrate --write changed")
    if not journal_folder(root).exists():
        raise MigrateError(f"nothing to undo: headrace migrate --write has not written to {root}")
    with _exclusive(root, recovering=False) as journal:
        if restored := journal.recover():
            return restored
        entries = journal.entries()
        if not entries:
            raise MigrateError(f"nothing to undo: every write to {root} was undone already")
        entry = entries[-1]
        changed = [file.path for file in entry.files if journal.digest(file.path) != file.after]
        if changed:
            raise MigrateError(
                "not undone, because these files changed since headrace migrate --write: "
                f"{', '.join(changed)}; put their changes aside first, or take single files from {entry.place / 'before'}"
            )
        entry.mark("undoing")
        journal.restore(entry)
        return [file.path for file in entry.files]


def recover(root: Path) -> list[str]:
    """Finish what an interrupted write or undo left: its files get their old bytes. The paths; none when all was in order."""
    if not interrupted(root):
        return []
    with _exclusive(root.resolve(), recovering=False) as journal:
        return journal.recover()


def interrupted(root: Path) -> list[str]:
    """The files of writes that were interrupted and not yet taken back; this only looks."""
    journal = _Journal(root.resolve(), journal_folder(root))
    if not journal.folder.is_dir():
        return []
    return [file.path for entry in journal.entries() if not entry.finished for file in entry.files]


@dataclass(frozen=True, kw_only=True)
class _File:
    path: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One write. `token` is in the names of all that it leaves in the repository for a while; nobody could guess it."""

    place: Path
    token: str
    files: tuple[_File, ...]
    models: bool
    replaced_models: bool

    @property
    def finished(self) -> bool:
        return (self.place / "done").exists() and not (self.place / "undoing").exists()

    def mark(self, name: str) -> None:
        (self.place / f"{name}.new").unlink(missing_ok=True)
        _write(self.place / f"{name}.new", b"")
        (self.place / f"{name}.new").rename(self.place / name)
        _flush(self.place)

    def aside(self, index: int) -> str:
        return f".headrace-{self.token}-{index}"


class _Journal:
    """The recorded writes to one repository."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self._tree = TreeFiles(root)

    def digest(self, path: str) -> str | None:
        """None for what is no plain file, or not there."""
        data = self._tree.read(path)
        return None if data is None else _hash(data)

    def entries(self) -> list[_Entry]:
        """The writes, oldest first."""
        names = [name for name in os.listdir(self.folder) if re.fullmatch("[0-9]{4,18}", name)]
        return [self._read(self.folder / name) for name in sorted(names, key=int)]

    def prepare(self, wanted: dict[str, Change], models: bool) -> _Entry:
        """The complete entry of a write that has not begun."""
        new = self.folder / _NEW
        number = max([int(entry.place.name) for entry in self.entries()], default=0) + 1
        try:
            (new / "before").mkdir(parents=True)
            files = []
            for index, (path, change) in enumerate(wanted.items()):
                if self._tree.keep(path, new / "before" / str(index)) != change.before:
                    raise MigrateError(f"{path} changed while it was migrated; run headrace migrate again")
                files.append(_File(path=path, before=_hash(change.before), after=_hash(change.after)))
            entry = _Entry(
                place=self.folder / f"{number:04}", token=secrets.token_hex(8), files=tuple(files), models=models,
                replaced_models=models and os.path.lexists(self.root / _MODELS),
            )  # fmt: skip
            record = {name: value for name, value in asdict(entry).items() if name != "place"}
            text = json.dumps({"schema": SCHEMA, "root": os.fspath(self.root), **record}).encode()
            _write(new / "record.json", _authenticator(text).encode() + b"\n" + text)
            _flush(new / "before")
            _flush(new)
            new.rename(entry.place)
            _flush(self.folder)
        except (OSError, MigrateError) as error:
            shutil.rmtree(new, ignore_errors=True)
            if isinstance(error, MigrateError):
                raise
            raise MigrateError(f"cannot prepare the journal in {self.folder}: {_reason(error)}; nothing was changed") from error
        return entry

    def put(self, entry: _Entry, after: Sequence[bytes], models: Path | None) -> None:
        """Do the write of an entry: everything is written beside first, so that a full disk changes nothing."""
        for index, (file, data) in enumerate(zip(entry.files, after, strict=True)):
            self._tree.stage(file.path, entry.aside(index), data)
        if models is not None:
            (self.root / FOLDER).mkdir(exist_ok=True)
            with self._tree.folder(_MODELS) as (here, _):  # which is no link
                with contextlib.suppress(FileExistsError):
                    ignore = os.open(".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=here)
                    os.write(ignore, b"*\n")
                    os.close(ignore)
                aside = f"{_MODELS}-{entry.token}"
                shutil.copytree(models, self.root / aside, symlinks=True)
                for folder, _, names in os.walk(self.root / aside):
                    for path in (*(Path(folder, name) for name in names), Path(folder)):
                        _flush(path)
        for index, file in enumerate(entry.files):
            self._tree.put(file.path, entry.aside(index))
        if models is not None:
            if entry.replaced_models:
                self._move_models("models", f"models-{entry.token}.before")
            self._move_models(f"models-{entry.token}", "models")
        entry.mark("done")

    def restore(self, entry: _Entry) -> list[str]:
        """Give every file of an entry its old bytes and drop the entry; can be interrupted and begun again at any point."""
        now = [self.digest(file.path) for file in entry.files]
        foreign = [file.path for file, digest in zip(entry.files, now, strict=True) if digest not in (file.before, file.after)]
        if foreign:
            raise MigrateError(
                f"an interrupted write left these files, which changed since: {', '.join(foreign)}; their old bytes are in "
                f"{entry.place / 'before'}: bring the files in order, then remove {entry.place}"
            )
        for index, (file, digest) in enumerate(zip(entry.files, now, strict=True)):
            self._tree.drop(file.path, entry.aside(index))
            if digest != file.before:
                kept = entry.place / "before" / str(index)
                data = kept.read_bytes()
                if _hash(data) != file.before:
                    raise MigrateError(f"{kept} is damaged, so {file.path} cannot be given back; take it from version control")
                self._tree.stage(file.path, entry.aside(index), data, like=kept)
                self._tree.put(file.path, entry.aside(index))
        if entry.models and (self.root / FOLDER).is_dir() and not (self.root / FOLDER).is_symlink():
            self._restore_models(entry)
        entry.place.rename(self.folder / _GONE)
        shutil.rmtree(self.folder / _GONE, ignore_errors=True)
        return [file.path for file, digest in zip(entry.files, now, strict=True) if digest != file.before]

    def recover(self) -> list[str]:
        for leftover in (_NEW, _GONE):
            shutil.rmtree(self.folder / leftover, ignore_errors=True)
        restored: list[str] = []
        for entry in reversed(self.entries()):
            if not entry.finished:
                restored += self.restore(entry)
        return restored

    def _restore_models(self, entry: _Entry) -> None:
        aside, before = f"models-{entry.token}", f"models-{entry.token}.before"
        with self._tree.folder(_MODELS) as (folder, _):
            names = set(os.listdir(folder))
            placed = before in names if entry.replaced_models else "models" in names
            if placed and "models" in names:
                shutil.rmtree(aside, ignore_errors=True, dir_fd=folder)  # an interrupted restore's
                self._move_models("models", aside)
            if before in names:
                self._move_models(before, "models")
            shutil.rmtree(aside, ignore_errors=True, dir_fd=folder)
            names = set(os.listdir(folder))
            if not names or (names == {".gitignore"} and self._tree.read(f"{FOLDER}/.gitignore") in (b"*\n", b"")):
                self._tree.drop(_MODELS, ".gitignore")
                os.rmdir(self.root / FOLDER)

    def _move_models(self, old: str, new: str) -> None:
        with self._tree.folder(_MODELS) as (folder, _):
            os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def _read(self, place: Path) -> _Entry:
        try:
            code, _, text = (place / "record.json").read_bytes().partition(b"\n")
            if not hmac.compare_digest(code, _authenticator(text).encode()):
                raise ValueError("its authentication code is not one of this user's headrace")
            record = json.loads(text)
            if record.pop("schema") != SCHEMA:
                raise MigrateError(f"{place} was written by another version of headrace; undo it with that one")
            if record.pop("root") != os.fspath(self.root):
                raise ValueError("it is another repository's")
            return _Entry(**{**record, "place": place, "files": tuple(_File(**file) for file in record["files"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MigrateError(
                f"{place} is no journal that headrace wrote ({error}); remove it if nothing is to be undone"
            ) from None


def _targets(root: Path, changes: Sequence[Change]) -> dict[str, Change]:
    """Real path, relative to the repository -> its change. A link and the file that it leads to are one."""
    wanted: dict[str, Change] = {}
    for change in sorted(changes, key=lambda change: (root / change.path).is_symlink()):
        real = (root / change.path).resolve()
        if not real.is_relative_to(root):
            raise MigrateError(f"{change.path} is a link to {real}, out of the repository; use --out DIR, or replace the link")
        wanted.setdefault(str(checked(real.relative_to(root).as_posix())), change)
    tree = TreeFiles(root)
    stale = [path for path, change in wanted.items() if tree.read(path) != change.before]
    if stale:
        raise MigrateError(f"these files changed while they were migrated: {', '.join(stale)}; run headrace migrate again")
    return wanted


@contextlib.contextmanager
def _exclusive(root: Path, *, recovering: bool = True) -> Iterator[_Journal]:
    """The journal, ours alone; what was interrupted is finished first."""
    folder = journal_folder(root)
    try:
        _state().mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = (
            f"cannot keep a journal in {folder}: {_reason(error)}; nothing was changed; XDG_STATE_HOME names another place"
        )
        raise MigrateError(message) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MigrateError(f"another headrace is writing to {root}; wait for its end and run this again") from None
        journal = _Journal(root, folder)
        try:
            if recovering:
                journal.recover()
            yield journal
        except OSError as error:
            message = f"{_reason(error)}; the next headrace migrate --write or undo puts in order what is half done"
            raise MigrateError(message) from error
    finally:
        os.close(lock)


def _state() -> Path:
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "state") / "headrace"


def _authenticator(text: bytes) -> str:
    """The HMAC of a text by this user's own key, which is made when it is first needed."""
    place = _state() / "key"
    if not place.exists():
        made = place.with_name(f"key-{secrets.token_hex(8)}")
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # of another headrace
            os.link(made, place)
        made.unlink()
    with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        status, key = os.fstat(file.fileno()), file.read(33)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077 or len(key) != 32:
        raise MigrateError(
            f"{place} is not readable by its owner alone, or not this user's; remove {place.parent} to begin anew"
        )
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: OSError) -> str:
    return f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
