"""A model archive of TorchServe: unpacked in the cache, and migrated from its handler on."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...stages.archive_folder import SUFFIXES, is_archive, unpacked
from ..folders import Repository
from ..source import Options, Source, file_digest

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class ArchiveFile:
    path: Path

    def models(self, cache: Path, options: Options, console: Console | None) -> Path:
        """Raises MigrateError, and what `prepared` raises."""
        stem = self.path.name.partition(".")[0] or "archive"
        folder = cache / "archives" / file_digest(self.path)[:16] / stem
        record = folder.with_name("entry")
        if not record.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(unpacked(self.path, folder), encoding="utf-8")
        return Repository(folder, entry=record.read_text(encoding="utf-8")).models(cache, options, console)

    def planned(self, options: Options, console: Console | None) -> AbstractContextManager[tuple[Path, str]]:
        """As that of a repository."""
        return Repository(self.path).planned(options, console)


def read(what: str, options: Options) -> ArchiveFile:
    return ArchiveFile(Path(what).resolve())


SOURCE = Source(
    form="FILE.mar", order=50, takes=lambda what: what.lower().endswith(SUFFIXES) and is_archive(Path(what)), read=read
)
