"""Files whose content lies elsewhere: what Git LFS or git-annex leaves in their place until it is fetched."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..reading.finding import Finding
from ..reading.source import head, walk


class Pointer(NamedTuple):
    """Which program left it, and the command that fetches what it stands for."""

    program: str
    command: str

    def __str__(self) -> str:
        return f"a pointer of {self.program}, whose content is not here; {self.command} fetches it"


_LFS = Pointer("Git LFS", "git lfs pull")
_HEADS = {
    b"version https://git-lfs.github.com/spec/": _LFS,
    b"version https://hawser.github.com/spec/": _LFS,  # its first name
    b"/annex/objects/": Pointer("git-annex", "git annex get"),
}
_MOST_BYTES = 1024
"""A pointer is smaller, as Git LFS's specification has it."""
_MOST_NAMED = 3
_MOST_ATTRIBUTES = 100_000


def pointer_in(path: Path) -> Pointer | None:
    """The pointer at a path; None where the file holds itself."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size < _MOST_BYTES:
            start = head(path, _MOST_BYTES)
            return next((told for beginning, told in _HEADS.items() if start.startswith(beginning)), None)
    return None


def pointers(root: Path) -> Iterator[tuple[str, Pointer]]:
    """The paths below `root` at which pointers lie, each with what `pointer_in` says; none where no attribute of Git speaks of
    either program, so that tens of thousands of small images are not opened."""
    for path in (
        walk(root, ("",), most=None) if any(_speaks_of_one(root / path) for path in walk(root, (".gitattributes",))) else ()
    ):
        if (told := pointer_in(root / path)) is not None:
            yield path, told


def _speaks_of_one(attributes: Path) -> bool:
    with contextlib.suppress(OSError):
        return re.search(rb"filter\s*=\s*lfs|annex", head(attributes, _MOST_ATTRIBUTES)) is not None
    return False


def missing_contents(root: Path) -> Iterator[Finding]:
    """A warning for each program whose pointers lie below `root`."""
    found: dict[Pointer, list[str]] = {}
    for path, told in pointers(root):
        found.setdefault(told, []).append(path)
    for (program, command), paths in found.items():
        names = ", ".join(paths[:_MOST_NAMED]) + (f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else "")
        one = len(paths) == 1
        message = (
            f"{names} {'is a pointer' if one else 'are pointers'} of {program}, and {'its' if one else 'their'} content is not "
            f"here, so the trial runs do without {'it' if one else 'them'}; {command} fetches it"
        )
        yield Finding(paths[0], 1, 0, "PS018", message, "warning")
