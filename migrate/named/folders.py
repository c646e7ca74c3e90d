"""What holds packaged models already, or has its own way to them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AmbiguousError, MigrateError
from ...scratch import ScratchFolder
from ..cache_entry import kept_folder
from ..prepared import place_in, planned, prepared
from .source import Options

if TYPE_CHECKING:
    from rich.console import Console

MANIFEST = "headrace.json"
_ASKED = ("random_weights", "input_size", "task", "precision", "budget", "device", "trust_checkpoint")
COMPANIONS = ("_decode", "_classify")


@dataclass(frozen=True)
class ModelsFolder:
    """A model repository as it stands."""

    path: Path

    def models(self, cache: Path, options: Options, console: Console | None) -> Path:
        return self.path


@dataclass(frozen=True)
class PackageFolder:
    """One model of a model repository, with its companions: links to them, in a folder of the cache."""

    path: Path

    def models(self, cache: Path, options: Options, console: Console | None) -> Path:
        place = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        view = kept_folder(cache / "named") / f"{self.path.name}-view-{place}"
        view.mkdir(parents=True, exist_ok=True)
        for name in (self.path.name, *(f"{self.path.name}{end}" for end in COMPANIONS)):
            link, target = view / name, self.path.with_name(name)
            if target.is_dir() and not link.is_symlink():
                with contextlib.suppress(FileExistsError):  # another process made it meanwhile
                    link.symlink_to(target)
            elif not target.is_dir():
                link.unlink(missing_ok=True)
        return view


@dataclass(frozen=True)
class Repository:
    """A repository of PyTorch code: migrated into the cache, from the script `entry` on where one is named."""

    path: Path
    entry: str | None = None

    def models(self, cache: Path, options: Options, console: Console | None) -> Path:
        """Raises what `prepared` raises."""
        with _choices_of_migrate(self.path):
            return prepared(
                self.path, place_in(cache, self.path), leave_out=(cache,), entry=self.entry, model=options.name,
                trust_repository=options.trust_repository, asked=_asked(self.path, options), console=console,
            )  # fmt: skip

    @contextlib.contextmanager
    def planned(self, options: Options, console: Console | None) -> Iterator[tuple[Path, str]]:
        """A models folder with it and a measured plan, and the model's name, for as long as the block lasts. The path may be a
        model archive. Raises what `prepared.planned` raises."""
        with ScratchFolder() as scratch:
            with _choices_of_migrate(self.path):
                made = planned(
                    self.path, scratch / "migrated", entry=self.entry, model=options.name, console=console,
                    trust_repository=options.trust_repository, tuning_seconds=options.max_tuning_seconds,
                    **_asked(self.path, options),
                )  # fmt: skip
            yield made


@contextlib.contextmanager
def _choices_of_migrate(repository: Path) -> Iterator[None]:
    """Name the command that takes a choice: those that take a repository by its path have no option for every one."""
    try:
        yield
    except AmbiguousError as error:
        command = f"headrace migrate {shlex.quote(str(repository))} --out DIR {error.flag}"
        message = f"{error.message}; what migrate writes to DIR is served, and asked, in the repository's place"
        raise AmbiguousError(message, candidates=error.candidates, flag=command) from None


def _asked(path: Path, options: Options) -> dict[str, Any]:
    """What of the options the migration takes. Raises MigrateError for images."""
    if options.images is not None:
        raise MigrateError(
            f"--images is not for {path}: what its own evaluation reads judges its plan; headrace tune MODEL --calibration "
            "takes other images for a packaged one"
        )
    asked: dict[str, Any] = {name: getattr(options, name) for name in _ASKED}
    if options.checkpoint is not None:
        asked["checkpoint"] = str(options.checkpoint.resolve())
    return asked
