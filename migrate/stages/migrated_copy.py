"""Write the migrated copy of a repository: built aside, then put in place with one rename."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import MigrateError
from ..rewriting.rewrite import Change
from .copy_tree import LEFT_OUT, MARKER, Copied, copy_tree

MODELS_FOLDERS = ("models", "model_repository")
WRITTEN = ".headrace-written.json"
"""What was written, so that a later run drops nothing that came since."""


def check_output(repository: Path, out: Path) -> None:
    """Refuse to write over what Headrace did not write. Raises MigrateError."""
    out, repository = out.resolve(), repository.resolve()
    if out == repository or repository.is_relative_to(out):
        raise MigrateError(f"--out {out} holds the repository itself; name a folder of its own")
    if out.exists() and not out.is_dir():
        raise MigrateError(f"--out {out} is a file; name a folder")
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
    for folder, names, files in os.walk(out):
        names[:] = [name for name in names if name not in LEFT_OUT or name == ".headrace"]
        for name in (*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))):
            path = Path(folder, name)
            status = path.lstat()
            found[path.relative_to(out).as_posix()] = [status.st_size, status.st_mtime_ns]
    return found


def record_repository(out: Path, repository: Path) -> None:
    """Have the report in a migrated copy name what the user gave, where that was unpacked to be migrated."""
    marker = out / MARKER
    content = {**json.loads(marker.read_text(encoding="utf-8")), "repository": str(repository)}
    marker.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
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
    progress: Callable[[float, str], None] | None = None,
) -> None:
    """Copy the repository to `out` with the changes made, add the packaged models and the report (which may tell of the copy).
    Where `changes` is None only the models and the report are wanted.

    Until everything is written, `out` is as it was; what Headrace wrote there before is replaced. Raises MigrateError where
    something else lies there too, or was changed since.
    """
    out = Path(os.path.abspath(out))
    check_output(repository, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.{os.getpid()}.new")
    former = out.with_name(f".{out.name}.{os.getpid()}.old")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        if changes is None:
            aside.mkdir()
            copied = Copied()
        else:
            copied = copy_tree(repository, aside, leave_out=(out, aside), progress=progress)
            apply(changes, aside)
        if models is not None:
            shutil.copytree(models, aside / models_folder(repository), symlinks=True)
        text = json.dumps(report(copied), indent=2, ensure_ascii=False) + "\n"
        with (aside / MARKER).open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        (aside / WRITTEN).write_text(json.dumps(_states(aside)), encoding="utf-8")
        if out.exists():
            out.rename(former)
        aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if former.exists() and not out.exists():
            former.rename(out)
        shutil.rmtree(former, ignore_errors=True)


def apply(changes: Sequence[Change], tree: Path) -> None:
    """Write the changed files into a copy of the repository. A link that leads out of the copy becomes a file of it."""
    for change in changes:
        place = tree / change.path
        if change.changed:
            if place.is_symlink() and not place.resolve().is_relative_to(tree.resolve()):
                place.unlink()
            place.write_bytes(change.after)
