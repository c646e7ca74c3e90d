"""Git submodules: folders of others' code, which a plain clone leaves empty."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from ..reading.finding import Finding
from ..reading.source import head

_PATH = re.compile(r"\s*path\s*=\s*(.+?)\s*$")
_MOST_BYTES = 100_000


def missing_submodules(root: Path) -> Iterator[Finding]:
    """A warning at each path of `.gitmodules` where nothing lies."""
    for number, path in missing_paths(root):
        message = (
            f"{path} is a git submodule that is not checked out, so what is imported from it is not here; "
            "git submodule update --init --recursive fetches it"
        )
        yield Finding(".gitmodules", number, 0, "PS017", message, "warning")


def missing_paths(root: Path) -> Iterator[tuple[int, str]]:
    """The lines and paths of `.gitmodules` where nothing lies."""
    yield from ((number, path) for number, path in _stated(root) if not _has_files(root / path))


def submodule_paths(root: Path) -> list[str]:
    """The folders of others' code that `.gitmodules` names, whether or not they are checked out."""
    return [path.strip("/") for _, path in _stated(root)]


def _stated(root: Path) -> Iterator[tuple[int, str]]:
    text = ""
    with contextlib.suppress(OSError):
        text = head(root / ".gitmodules", _MOST_BYTES).decode(errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if (found := _PATH.match(line)) is not None:
            yield number, found[1]


def _has_files(folder: Path) -> bool:
    try:
        return any(item.name != ".git" for item in folder.iterdir())
    except (OSError, ValueError):  # not there, no folder, or no name of one
        return False
