"""Where the user's code runs: what this process writes and what that code may write never meet in one folder.

A hostile program could otherwise leave a link where this process writes next, and so reach files beyond the sandbox. So every
run gets a fresh folder of its own to write to, and everything else of the scratch folder belongs to this process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...errors import SandboxError
from ...scratch import ScratchFolder
from ...trust import REMEDY, is_trusted
from .confined_run import INTERPRETER, Completed, Limits, clean_environment, run

ANSWER_BYTES = 2**26
ARRAY_BYTES = 2**32
Server = Callable[[Path, Path, Callable[[str], None]], str | None]
"""Takes the paths of a request and its response, and what sees each line of output; gives why there is no response, or None."""


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """The scratch folder of one migration, and the bounds within which the user's code runs."""

    scratch: Path
    limits: Limits = field(default_factory=Limits)
    trusted: bool = False
    """Whether checkpoints may run code while they load."""
    trust_repository: bool = False
    """Whether the code may run where it cannot be isolated, and may then read all files."""
    readable: tuple[Path, ...] = ()
    """What it may read beside the scratch folder: a checkpoint, data."""
    checkpoint: Path | None = None
    """The weights that the user gave, which a rehearsed script finds where it looks for some that are not here."""
    writable_in: Path | None = None
    """Where writable folders are made; the scratch folder by default."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment, beside what every program gets there."""
    server: Server | None = None
    """Answers requests to the worker without a new process for each; see `worker_pool`."""

    @property
    def tree(self) -> Path:
        """The copy of the repository, which the user's code may change: write to it right after a fresh copy only."""
        return self.scratch / "repository"

    @property
    def models(self) -> Path:
        """Where packaged models are kept, out of reach of whatever runs later; the user's code can only read it."""
        return self.scratch / "models"

    def writable_folder(self) -> Path:
        """A new empty folder for one run to write to."""
        return Path(tempfile.mkdtemp(prefix="writable-", dir=self.writable_in or self.scratch))

    def readable_folder(self) -> Path:
        """A new empty folder for this process to write to; the user's code can only read it."""
        return Path(tempfile.mkdtemp(prefix="readable-", dir=self.scratch))

    def run(
        self,
        arguments: Sequence[str],
        writable: Path,
        *,
        cwd: Path | None = None,
        extra: Mapping[str, str] | None = None,
        search: Path | None = None,
        limits: Limits | None = None,
        on_line: Callable[[str], None] | None = None,
        stop: threading.Event | None = None,
    ) -> Completed:
        """Run Python with these arguments in `cwd` (else in `writable`); `search` leads PYTHONPATH, `on_line` gets the output.

        `stop` ends it."""
        shared = self.scratch / "cache"  # the migrated scripts run the same model: the second need not tune it again
        shared.mkdir(exist_ok=True)
        variables = {"HEADRACE_CACHE": str(shared), **self.variables, **(extra or {})}
        environment = clean_environment(writable, trusted=self.trusted, extra=variables)
        if search is not None:
            environment["PYTHONPATH"] = ":".join(filter(None, [str(search), environment.get("PYTHONPATH", "")]))
        folders = [folder for folder in (writable, shared, self.tree) if folder.is_dir()]
        return run(
            [INTERPRETER, *arguments], cwd=cwd or writable, environment=environment, writable=folders,
            readable=[self.scratch, *self.readable], trusted=self.trust_repository,
            limits=limits or self.limits, on_line=on_line, stop=stop,
        )  # fmt: skip


def read_left(path: Path, *, most: int = ANSWER_BYTES) -> bytes:
    """What the user's code left in a file. Raises SandboxError where it is no plain file, missing, or above `most` bytes."""
    with _left(path, most) as file:
        return file.read(most)


def read_left_json(path: Path) -> Any:
    """The JSON document that the user's code left. Raises SandboxError as `read_left` does, and where it is none."""
    try:
        return json.loads(read_left(path))
    except (ValueError, RecursionError) as error:
        raise SandboxError(f"{path.name} is no JSON document: {error}") from None


def read_left_arrays(path: Path) -> dict[str, np.ndarray]:
    """Numbers and texts that the user's code left as .npz. Raises SandboxError as `read_left` does, and where it is none."""
    try:
        with _left(path, ARRAY_BYTES) as file:
            with zipfile.ZipFile(file) as archive:
                if sum(item.file_size for item in archive.infolist()) > ARRAY_BYTES:
                    raise SandboxError(f"{path.name} unpacks to more than {ARRAY_BYTES >> 20} MiB")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, MemoryError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise SandboxError(f"{path.name} is no archive of arrays: {error}") from None
    if any(not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU" for array in found.values()):
        raise SandboxError(f"{path.name} holds something other than numbers and texts")
    return found


@contextlib.contextmanager
def _left(path: Path, most: int) -> Iterator[IO[bytes]]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    except OSError as error:
        raise SandboxError(f"{path.name} cannot be read: {error.strerror}") from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        os.close(handle)
        what = f"holds more than {most >> 20} MiB" if stat.S_ISREG(status.st_mode) else "is no plain file"
        raise SandboxError(f"{path.name} {what}")
    with open(handle, "rb") as file:
        yield file


def trust_repository(asked: bool) -> bool:
    """Whether the user's code has to run without walls, since this platform has none.

    Raises SandboxError where nobody said that it may: by the flag, or by HEADRACE_TRUST_REPOSITORY=1, as where a container is
    the wall.
    """
    why = missing_isolation()
    if why is not None and not is_trusted(asked):
        raise SandboxError(
            f"this machine cannot isolate code that is not trusted ({why}). The repository's code would run with your "
            f"rights, on your files: {REMEDY}"
        )
    return why is not None


@functools.cache
def missing_isolation() -> str | None:
    """Why this platform cannot isolate the user's code, tried once; None where it can."""
    with ScratchFolder() as place:
        done = run([INTERPRETER, "-I", "-c", ""], cwd=place, environment=clean_environment(place), writable=[place])
        return None if done.isolation.get("filesystem") else done.why or "the platform has no such means"
