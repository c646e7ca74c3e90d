"""A repository that somebody wants served at once: its models, migrated into a folder aside, once."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..errors import MigrateError
from .api import migrate
from .cache_entry import kept_folder, made_aside
from .stages.copy_tree import MARKER, is_environment
from .stages.migrated_copy import MODELS_FOLDERS, models_folder

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["files_digest", "installed_digest", "migrated_from", "place_in", "planned", "prepared"]

_RECORD = "prepared.json"
_MOST_FILES = 200_000
_MOST_LINKED = 10_000
_SKIPPED = frozenset({"__pycache__", "node_modules"})


def prepared(
    repository: Path,
    folder: Path,
    *,
    leave_out: tuple[Path, ...] = (),
    entry: str | None = None,
    model: str | None = None,
    trust_repository: bool = False,
    asked: Mapping[str, Any] | None = None,
    console: Console | None = None,
) -> Path:
    """The model repository of a migrated copy of `repository` in `folder`, another one where a file of it changed since: a
    server may go on with the one before.

    It is quickly made: the portable graph alone, proved and without a plan, and no migrated script is run. `leave_out` are
    folders in the repository that do not count. `asked` are further arguments of `migrate` that JSON can hold. Raises as
    `planned` does.
    """
    wanted = json.loads(
        json.dumps(
            {
                "repository": str(repository.resolve()),
                "files": files_digest(repository.resolve(), tuple(path.resolve() for path in leave_out)),
                "entry": entry,
                "model": model,
                "asked": dict(asked or {}),
                "installed": installed_digest(),
                "headrace": __version__,
            }
        )
    )  # as it is read again
    place = kept_folder(folder) / hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]
    models = place / "migrated" / models_folder(repository)

    def complete() -> bool:
        return (place / "migrated" / MARKER).is_file() and models.is_dir() and _read(place / _RECORD) == wanted

    if os.path.lexists(place):
        kept_folder(place)
    if not complete():
        given = {"entry": entry, "model": model, "trust_repository": trust_repository, **(asked or {})}
        with made_aside(place, complete) as aside:
            _packaged(repository, aside / "migrated", console=console, planned=False, **given)
            (aside / _RECORD).write_text(json.dumps(wanted), encoding="utf-8")
    return models


def installed_digest() -> str:
    """What changes with any library that is installed: the repository's code runs with them, and is packaged without what it
    lacks. Where the command lies or was typed, which leads the path, is no place of theirs."""
    names: set[str] = set()
    for folder in sys.path[0 if sys.flags.safe_path else 1 :]:
        with contextlib.suppress(OSError):  # much of the path is not there
            names.update(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
    return hashlib.sha256("\n".join([sys.version, *sorted(names)]).encode("utf-8", "surrogateescape")).hexdigest()


def planned(repository: Path, folder: Path, *, console: Console | None, **asked: Any) -> tuple[Path, str]:
    """The model repository of a migrated copy in `folder`, proved by the scripts' own runs and with a measured plan, and the
    name of the model that was asked for. `repository` may be a model archive.

    Raises what `migrate` raises, AmbiguousError for a choice that is the user's, and MigrateError with the findings when no
    model came of it.
    """
    return _packaged(repository, folder, console=console, planned=True, **asked)


def _packaged(repository: Path, target: Path, *, console: Console | None, **asked: Any) -> tuple[Path, str]:
    report = migrate(repository, out=target, scripts=False, console=console, **asked)
    places = [target / found.artifact for found in report.models if found.artifact]
    if not places:
        errors = [f"{finding.code} {finding.message}" for finding in report.findings if finding.severity == "error"]
        reasons = errors or [found.parity.why for found in report.models if found.parity.why] or ["no model was recognised"]
        raise MigrateError(f"{repository} has no model to serve yet:\n" + "\n".join(f"  {reason}" for reason in reasons))
    if console is not None:
        for finding in (finding for finding in report.findings if finding.severity == "warning"):
            console.print(f"{finding.code} {finding.message}", markup=False, highlight=False)
    return places[0].parent, places[0].name


def place_in(cache: Path, repository: Path) -> Path:
    """Where a cache keeps what is made of a repository."""
    place = repository.resolve()
    return cache / "prepared" / f"{place.name}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"


def migrated_from(path: Path) -> tuple[Path, Path | None] | None:
    """The model repository in a folder that `headrace migrate --out` wrote, and the repository that it was made of if that is
    still there; None for any other folder."""
    record = _read(path / MARKER)
    if record is None:
        return None
    models = next((path / name for name in MODELS_FOLDERS if any((path / name).glob("*/*/headrace.json"))), None)
    if models is None:
        return None
    repository = Path(str(record.get("repository") or ""))
    return models, repository if record.get("repository") and repository.is_dir() else None


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def files_digest(root: Path, leave_out: tuple[Path, ...] = ()) -> str:
    """What changes with any file of a folder, by their names, sizes and times; hidden folders do not count. Of what links lead
    to the same counts, of folders the files in it alone: weights are often kept elsewhere. Raises MigrateError where there are
    too many."""
    seen = hashlib.sha256()
    count = 0

    def add(place: str, status: os.stat_result | None) -> None:
        nonlocal count
        told = f"{status.st_size}\0{status.st_mtime_ns}" if status else "gone"
        seen.update(f"{place}\0{told}\n".encode("utf-8", "surrogateescape"))
        count += 1
        if count > _MOST_FILES:
            raise MigrateError(
                f"{root} has more than {_MOST_FILES:,} files; migrate it with headrace migrate --out DIR instead"
            )

    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".")
            and name not in _SKIPPED
            and here / name not in leave_out
            and not is_environment(here / name)
        )
        for name in (*sorted(files), *(name for name in names if os.path.islink(here / name))):
            path = here / name
            place = path.relative_to(root).as_posix()
            add(place, _status(path, follow=False))
            if path.is_symlink():
                add(f"{place} ->", _status(path, follow=True))
                for inner in _files_in(path):
                    add(f"{place}/{inner}", _status(path / inner, follow=True))
    return seen.hexdigest()


def _status(path: Path, *, follow: bool) -> os.stat_result | None:
    """None for what is not there, or no more: files come and go while they are looked at."""
    try:
        return path.stat(follow_symlinks=follow)
    except OSError:
        return None


def _files_in(folder: Path) -> list[str]:
    """The first files of a folder that a link leads to; none where it is another thing, or closed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in itertools.islice(entries, _MOST_LINKED) if entry.is_file())
    except OSError:
        return []
