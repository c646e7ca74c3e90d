"""A model archive of TorchServe: unpacked in the cache, and migrated from its handler on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ...cache_entry import kept_folder, made_aside
from ...stages.archive_folder import SUFFIXES, is_archive, unpacked
from ..folders import Repository
from ..source import Options, Source, file_digest

if TYPE_CHECKING:
    from rich.console import Console

_RECORD = "entry.txt"  # the script; no archive's stem has a dot


@dataclass(frozen=True)
class ArchiveFile:
    path: Path

    def models(self, cache: Path, options: Options, console: Console | None) -> Path:
        """Raises MigrateError, and what `prepared` raises."""
        stem = self.path.name.partition(".")[0] or "archive"
        # a copy under another name is another model's archive: it is called so
        entry = kept_folder(cache / "archives") / f"{file_digest(self.path)[:16]}-{sha256(os.fsencode(stem)).hexdigest()[:8]}"
        folder, record = entry / stem, entry / _RECORD

        def complete() -> bool:
            return record.is_file() and folder.is_dir()

        if not complete():
            with made_aside(entry, complete) as aside:
                (aside / _RECORD).write_text(unpacked(self.path, aside / stem), encoding="utf-8")
        return Repository(folder, entry=record.read_text(encoding="utf-8")).models(cache, options, console)

    def planned(self, options: Options, console: Console | None) -> AbstractContextManager[tuple[Path, str]]:
        """As that of a repository."""
        return Repository(self.path).planned(options, console)


def read(what: str, options: Options) -> ArchiveFile:
    return ArchiveFile(Path(what).resolve())


SOURCE = Source(
    form="FILE.mar", order=50, takes=lambda what: what.lower().endswith(SUFFIXES) and is_archive(Path(what)), read=read
)
