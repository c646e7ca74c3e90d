"""What a kind of WHAT declares, what may be asked for, and what reading a WHAT gives."""

from __future__ import annotations

import abc
import hashlib
import importlib.metadata
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ...errors import MigrateError

if TYPE_CHECKING:
    from rich.console import Console

    from ..proving.sandbox import Sandbox
    from ..proving.worker_protocol import Failed, ModelPackaged
    from ..reporting.progress import Stages

_DEVICES = ("auto", "cpu", "cuda")
_CHUNK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked of a model beside its name.

    `name` is what it is served as. `checkpoint` is a file of weights to use instead of the library's own. `random_weights`
    allows weights that are nobody's. `input_size` is (channels, height, width), where the model does not tell. `task` says what
    the outputs are: "multi-label:0.3". `images` is a folder of images, or an .npz file of inputs "images" and their "labels",
    that judges lossy precisions and sets the ranges of int8; `budget` is how many points those may lose on them. `device` is
    what the plan is made for: "cpu", "cuda", or "auto", where the model's parameters are. `timeout` bounds each subprocess, in
    seconds. Raises ValueError.
    """

    name: str | None = None
    checkpoint: Path | None = None
    random_weights: bool = False
    input_size: tuple[int, int, int] | None = None
    task: str = ""
    precision: str = "auto"
    images: Path | None = None
    budget: float | None = None
    device: str = "auto"
    max_tuning_seconds: float | None = None
    timeout: float = 1800.0
    trust_checkpoint: bool = False
    trust_repository: bool = False
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if (self.max_tuning_seconds is not None and self.max_tuning_seconds <= 0) or self.timeout <= 0:
            raise ValueError("max_tuning_seconds and timeout must be positive")
        if self.budget is not None and self.images is None:
            raise ValueError("a budget is held to on real images: give --images, too")
        if self.device not in _DEVICES:
            raise ValueError(f"device must be one of {', '.join(_DEVICES)}, got {self.device!r}")
        if self.input_size is not None and any(size < 1 for size in self.input_size):
            raise ValueError(f"input_size must be positive, got {self.input_size}")


class Subject(Protocol):
    """What a WHAT turned out to be. Those that hold models already have `models` alone."""

    def models(self, cache: Path, options: Options, console: Console | None) -> Path:
        """A model repository with it."""


@runtime_checkable
class Plannable(Protocol):
    """What has its own way to a measured plan."""

    def planned(self, options: Options, console: Console | None) -> AbstractContextManager[tuple[Path, str]]:
        """A models folder with it, and the model's name, for as long as the block lasts."""


class Packageable(abc.ABC):
    """What becomes one packaged model, by a worker in a sandbox.

    `what` is how it was named, `title` the name that a model repository gets for it where none is asked for; empty where only
    the built model tells. `readable` are files and folders of the user's that the worker reads. `strange`: it runs code that is
    no installed library's.
    """

    what: str
    title: str
    readable: tuple[Path, ...]
    strange: bool

    @abc.abstractmethod
    def key(self) -> Mapping[str, Any]:
        """What decides the package, beside the options."""

    @abc.abstractmethod
    def package(self, sandbox: Sandbox, options: Options, stages: Stages, *, planned: bool) -> ModelPackaged | Failed:
        """Package it as `sandbox.models/NAME`. Raises MigrateError."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of WHAT: `form` is how it is written, `prefix` what it starts with, where that tells it ("timm:").

    Without one `takes` says whether a text names such a thing; kinds of lower `order` are asked first. `read` makes of it what
    it is, and raises MigrateError.
    """

    form: str
    prefix: str = ""
    order: int = 0
    takes: Callable[[str], bool] = lambda what: False
    read: Callable[[str, Options], Subject | Packageable]


def versions(*distributions: str) -> dict[str, str]:
    """Of installed distributions. Raises MigrateError with the command that installs what is missing."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise MigrateError(f"{name} is not installed: pip install {name}") from None
    return found


def file_digest(path: Path) -> str:
    """Of a file's content. Raises MigrateError where it cannot be read."""
    total = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                total.update(chunk)
    except OSError as error:
        raise MigrateError(f"{path}: {error.strerror}") from None
    return total.hexdigest()


def existing_checkpoint(given: str, options: Options) -> Path | None:
    """The file of weights that follows a name, or that --checkpoint names. Raises MigrateError where it is not there."""
    if given and options.checkpoint is not None:
        raise MigrateError(f"weights are named twice, {given} and --checkpoint {options.checkpoint}; name one")
    path = Path(given) if given else options.checkpoint
    if path is not None and not path.is_file():
        raise MigrateError(f"{path}: no such checkpoint")
    if path is not None and options.random_weights:
        raise MigrateError(f"--random-weights does not go with weights of {path}")
    return path
