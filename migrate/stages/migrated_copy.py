"""Write the migrated copy of a repository: built aside, then put in place with one rename."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import MigrateError
from ...scratch import locked, remove_tree
from ..reading.source import SourceFile, folders, head
from ..rewriting.rewrite import Change
from .copy_tree import LEFT_OUT, MARKER, Copied, copy_tree

MODELS_FOLDERS = ("models", "model_repository")
_NEW, _OLD = ".headrace-new", ".headrace-old"
WRITTEN = ".headrace-written.json"
"""What was written, so that a later run drops nothing that came since."""


def check_output(repository: Path, out: Path) -> None:
    """Refuse to write over what Headrace did not write, and where nothing can be put. Raises MigrateError."""
    given, out, repository = out, out.resolve(), repository.resolve()
    if out == repository or repository.is_relative_to(out):
        raise MigrateError(f"--out {out} holds the repository itself; name a folder of its own")
    if out.exists() and not out.is_dir():
        raise MigrateError(f"--out {out} is a file; name a folder")
    above = next(folder for folder in out.parents if folder.exists())
    if not above.is_dir():
        raise MigrateError(f"--out {given}: {above} is a file; name another folder")
    remedy = "name a folder in it" if out.is_dir() else "name another folder"  # since all of `out` is replaced, in one rename
    try:  # rights alone do not tell: a disk may be full, or the folder one of the kernel's
        os.rmdir(tempfile.mkdtemp(prefix=".headrace-", dir=above))
    except OSError as error:
        raise MigrateError(f"--out {given}: nothing can be written in {above} ({error.strerror}); {remedy}") from error
    if out.is_mount():
        raise MigrateError(f"--out {given}: a disk is mounted there, whose place nothing can take; {remedy}")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise MigrateError(
            f"--out {out} is not empty and was not written by headrace migrate; name another folder or remove it"
        )
    if out.is_dir() and (mine := _changed_since(out)):
        raise MigrateError(
            f"--out {out} holds what headrace migrate did not write there: {', '.join(mine[:5])}"
            f"{f' and {len(mine) - 5} more' if len(mine) > 5 else ''}; move that aside, name another folder, or remove {out}"
        )


def _changed_since(out: Path) -> list[str]:
    """The files of an earlier output that were changed or added since; not caches, which are made anew."""
    if not any(out.iterdir()):
        return []
    try:
        written = json.loads((out / WRITTEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [WRITTEN]
    return [path for path, state in _states(out).items() if path != WRITTEN and written.get(path) != state]


def _states(out: Path) -> dict[str, list[int]]:
    """Size and time of each file, the target's length of each link."""
    found = {}
    for folder, names, files in folders(out):
        names[:] = [name for name in names if name not in LEFT_OUT or name == ".headrace"]
        for name in (*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))):
            path = Path(folder, name)
            status = path.lstat()
            found[path.relative_to(out).as_posix()] = [status.st_size, status.st_mtime_ns]
    return found


def _text(content: dict[str, Any]) -> bytes:
    """As JSON. Names that are not UTF-8 have escapes in place of their bytes."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def record_repository(out: Path, repository: Path) -> None:
    """Have the report in a migrated copy name what the user gave, where that was unpacked to be migrated."""
    marker = out / MARKER
    content = {**json.loads(marker.read_text(encoding="utf-8")), "repository": str(repository)}
    marker.write_bytes(_text(content))
    written = json.loads((out / WRITTEN).read_text(encoding="utf-8"))
    (out / WRITTEN).write_text(json.dumps({**written, MARKER: _states(out)[MARKER]}), encoding="utf-8")


def models_folder(repository: Path) -> str:
    """Where the model repository goes in the output; the usual name is taken where the code has a package of that name."""
    usual, other = MODELS_FOLDERS
    return other if (repository / usual).exists() else usual


def write_output(
    repository: Path,
    out: Path,
    changes: Sequence[Change] | None,
    *,
    models: Path | None,
    report: Callable[[Copied], dict[str, Any]],
    read: Sequence[SourceFile] = (),
    progress: Callable[[float, str], None] | None = None,
) -> None:
    """Copy the repository to `out` with the changes made, add the packaged models and the report (which may tell of the copy).
    Where `changes` is None only the models and the report are wanted.

    Until everything is written, `out` is as it was; what Headrace wrote there before is replaced. Raises MigrateError where
    something else lies there too, or was changed since, and where a source is no longer what was `read` and proved.
    """
    out = out.resolve()
    recover_output(out)
    check_output(repository, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    aside, former = _beside(out, token, _NEW), _beside(out, token, _OLD)
    with contextlib.ExitStack() as stack:
        stack.callback(remove_tree, aside)
        with locked(out.parent):
            aside.mkdir()
            stack.enter_context(locked(aside))
        _fill(repository, aside, changes, out=out, models=models, report=report, read=read, progress=progress)
        with locked(out.parent):
            try:
                if out.exists():
                    out.rename(former)
                aside.rename(out)
            finally:
                if former.exists() and not out.exists():
                    former.rename(out)
                remove_tree(former)


def _fill(
    repository: Path,
    aside: Path,
    changes: Sequence[Change] | None,
    *,
    out: Path,
    models: Path | None,
    report: Callable[[Copied], dict[str, Any]],
    read: Sequence[SourceFile],
    progress: Callable[[float, str], None] | None,
) -> None:
    copied = Copied()
    if changes is not None:
        copied = copy_tree(repository, aside, leave_out=(out, aside), progress=progress)
        if changed := [file.path for file in read if file.data and not _is_as_read(file, aside, repository)]:
            raise MigrateError(
                f"{', '.join(changed[:5])}{f' and {len(changed) - 5} more' if len(changed) > 5 else ''} changed while the "
                "repository was migrated, so what was proved is not what is there; run headrace migrate again"
            )
        apply(changes, aside)
    if models is not None:
        shutil.copytree(models, aside / models_folder(repository), symlinks=True)
    with (aside / MARKER).open("wb") as file:
        file.write(_text(report(copied)))
        file.flush()
        os.fsync(file.fileno())
    (aside / WRITTEN).write_text(json.dumps(_states(aside)), encoding="utf-8")


def _is_as_read(file: SourceFile, *trees: Path) -> bool:
    """Whether the first of the trees that has the file, the copy before the repository, has its bytes."""
    for tree in trees:
        with contextlib.suppress(OSError):
            return head(tree / file.path, len(file.data) + 1) == file.data
    return False


def recover_output(out: Path) -> str | None:
    """Put in order what a killed `write_output` left beside `out`: what was found, if anything was."""
    out = out.resolve()
    if not out.parent.is_dir() or not any(_left(out)):
        return None
    said = None
    with locked(out.parent):
        for place in _left(out):
            if place.name.endswith(_OLD) and not os.path.lexists(out):  # killed between the two renames
                place.rename(out)
                said = f"an earlier run was killed while it replaced {out}: what stood there is back"
                continue
            with contextlib.suppress(BlockingIOError), locked(place, wait=False):  # of one that still runs
                remove_tree(place)
                said = said or f"an earlier run was killed while it wrote {out}: its unfinished copy was removed"
    return said


def _left(out: Path) -> list[Path]:
    form = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}({re.escape(_NEW)}|{re.escape(_OLD)})")
    found = (path for path in out.parent.iterdir() if form.fullmatch(path.name))
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def _beside(out: Path, token: str, kind: str) -> Path:
    return out.with_name(f".{out.name}.{token}{kind}")


def apply(changes: Sequence[Change], tree: Path) -> None:
    """Write the changed files into a copy of the repository. A link that leads out of the copy becomes a file of it."""
    for change in changes:
        place = tree / change.path
        if change.changed:
            if place.is_symlink() and not place.resolve().is_relative_to(tree.resolve()):
                place.unlink()
            place.write_bytes(change.after)
