"""`packaged`: whatever a WHAT names, as a model repository that can be served, kept in a cache."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ..._version import __version__
from ...errors import MigrateError
from ...scratch import ScratchFolder
from ..cache_entry import kept_folder, made_aside
from ..prepared import files_digest
from ..proving.confined_run import Limits
from ..proving.sandbox import Sandbox, missing_isolation, trust_repository
from ..proving.worker_protocol import ModelPackaged
from ..reporting.progress import Stages
from ..stages.worker_client import model_name
from .code import said
from .source import Options, Packageable, Plannable, Subject, file_digest
from .sources import discover

if TYPE_CHECKING:
    from rich.console import Console

_RECORD = "named.json"
_OF_THE_PACKAGE = ("name", "random_weights", "input_size", "task", "precision", "budget", "device", "trust_remote_code")


def packaged(what: str, *, cache: Path, options: Options | None = None, console: Console | None = None) -> Path:
    """A model repository with what `what` names: a folder that `headrace serve` opens.

    `what` is one of `forms()`. A models folder is given back as it is. What is made is kept in `cache`, found by all that
    decides it, and put there whole or not at all. It is quickly made: the portable graph alone, proved and without a plan;
    `compile_model` with the folder as `out` makes the plan and puts the package in its place. Raises MigrateError saying what
    is wrong and what to do, AmbiguousError for a choice that is the user's.
    """
    options = options or Options()
    subject = read(what, options)
    if not isinstance(subject, Packageable):
        return subject.models(cache, options, console)
    wanted = _wanted(subject, options)
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]
    entry = kept_folder(cache / "named") / f"{options.name or subject.title or 'model'}-{digest}"

    def complete() -> bool:
        return (entry / _RECORD).is_file() and (entry / "models").is_dir()

    if not complete():
        with made_aside(entry, complete) as aside:
            with _made(subject, options, console, planned=False) as (models, _):
                shutil.copytree(models, aside / "models")
            (aside / _RECORD).write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    return entry / "models"


def compile_model(
    what: str,
    out: Path,
    place: Callable[[Path, Path, str], Path],
    *,
    options: Options | None = None,
    console: Console | None = None,
) -> Path:
    """Build what `what` names in a confined subprocess, measure a plan, and have it written to `out/NAME`, which is returned.

    The model's code reaches nothing of `out`: `place` is given the folder where the package was made, `out` and the model's
    name, and says where it put it. Weights that are nobody's are proved on a copy with others. Raises as `packaged` does.
    """
    options = options or Options()
    subject = read(what, options)
    if not isinstance(subject, Packageable | Plannable):
        raise MigrateError(
            f"{what} is no single model to compile; headrace serve serves it as it is, and headrace tune plans it"
        )
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    made: contextlib.AbstractContextManager[tuple[Path, str]] = (
        _made(subject, options, console, planned=True)
        if isinstance(subject, Packageable)
        else subject.planned(options, console)
    )
    with made as (models, name):
        return place(models, out, name)


def read(what: str, options: Options) -> Subject | Packageable:
    """What a WHAT is. Raises MigrateError that names what is near, or all forms."""
    for source in discover():
        if source.prefix and what.startswith(source.prefix):
            return source.read(what.removeprefix(source.prefix), options)
    for source in discover():
        if not source.prefix and source.takes(what):
            return source.read(what, options)
    prefix, colon, rest = what.partition(":")
    prefixes = [source.prefix for source in discover() if source.prefix]
    if colon and (near := difflib.get_close_matches(f"{prefix}:", prefixes, 1)):
        raise MigrateError(f"{what}: nothing is named so; did you mean {near[0]}{rest}?")
    if not colon and Path(what).exists():
        raise MigrateError(f"{what} is nothing that can be served; that is one of {', '.join(forms())}")
    raise MigrateError(f"{what}: no such file or folder, and no name; a model is one of {', '.join(forms())}")


def forms() -> list[str]:
    """How each kind of WHAT is written."""
    return [source.form for source in discover()]


def _wanted(subject: Packageable, options: Options) -> Mapping[str, Any]:
    """All that decides a package and its plan, as JSON."""
    asked = {name: getattr(options, name) for name in _OF_THE_PACKAGE}
    images = None
    if options.images is not None:
        place = options.images.resolve()
        images = [str(place), files_digest(place) if place.is_dir() else file_digest(place)]
    return {"what": subject.what, **subject.key(), **asked, "images": images, "headrace": __version__}


@contextlib.contextmanager
def _made(subject: Packageable, options: Options, console: Console | None, *, planned: bool) -> Iterator[tuple[Path, str]]:
    """The models folder in which the package lies for as long as the block lasts, and its name there."""
    if options.images is not None and not (options.images.is_dir() or options.images.suffix == ".npz"):
        raise MigrateError(f"{options.images}: no such folder of images, and no .npz file")
    if "int8" in options.precision.split(",") and options.images is None:
        raise MigrateError("--precision int8 needs real images for its ranges: --images DIR")
    if options.name is not None and options.name != model_name(options.name):
        raise MigrateError(f"--name {options.name!r} cannot name a model: letters, digits, dot, dash and underscore may")
    with ScratchFolder() as scratch, Stages(console) as stages:
        sandbox = sandbox_for(subject, options, scratch)
        made = subject.package(sandbox, options, stages, planned=planned)
        if not isinstance(made, ModelPackaged):
            raise MigrateError(f"{subject.what}: {said(made)}")
        yield sandbox.models, Path(made.artifact).name


def sandbox_for(subject: Packageable, options: Options, scratch: Path) -> Sandbox:
    """Where the subject's code runs, with what it and the options need to be read. Raises SandboxError where this platform has
    no walls and nobody trusted the code."""
    images = () if options.images is None else (options.images.resolve(),)
    return Sandbox(
        scratch=scratch, limits=Limits(timeout=options.timeout, memory_bytes=psutil.virtual_memory().total * 3 // 4),
        trusted=options.trust_checkpoint, trust_repository=_trusted(subject, options), readable=(*subject.readable, *images),
        variables={"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    )  # fmt: skip


def _trusted(subject: Packageable, options: Options) -> bool:
    """Whether the code may run where this platform has no walls: that of installed libraries may, as anywhere."""
    if subject.strange:
        return trust_repository(options.trust_repository)
    return missing_isolation() is not None
