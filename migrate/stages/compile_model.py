"""One model named on the command line (FILE.py:EXPRESSION or package.module:EXPRESSION), packaged without a migration."""

from __future__ import annotations

import ast
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from ...errors import AmbiguousError, MigrateError
from ..proving.confined_run import Limits
from ..proving.sandbox import Sandbox, trust_repository
from ..proving.verify import Recorded
from ..proving.worker_pool import WorkerPool
from ..proving.worker_protocol import Failed, Inspected, ModelPackaged, Package, Response, Row
from ..reading.recipe import Recipe
from .progress import Stages
from .worker_client import inspect, model_name, package

if TYPE_CHECKING:
    from rich.console import Console

_DEVICES = ("auto", "cpu", "cuda")

# EXPRESSION is read in the namespace of the module, so it can be a factory, a call with arguments, or a finished model.
SOURCE = """\
import importlib
globals().update(vars(importlib.import_module({module!r})))
model = {expression}
if isinstance(model, type) or not hasattr(model, "forward"):
    model = model()
"""
LOAD = """\
from headrace.migrate.worker.checkpoint import load_weights
load_weights(model, {path!r})
"""


@dataclass(frozen=True, kw_only=True)
class CompileConfig:
    """What `headrace compile` makes. `input_size` is (channels, height, width); None asks the model itself, where it can tell.

    `task` says what the outputs are, where their shapes do not tell: "multi-label:0.3", "embedding".
    `images` is an .npz file whose array "images" [n, C, H, W] judges lossy precisions, with "labels" [n] where they are known,
    and `budget` the most points of accuracy that those may lose.
    `device` is what the plan is made for: "cpu", "cuda", or "auto", where the model's parameters are.
    `timeout` bounds the subprocess that builds and compiles the model, in seconds.
    """

    out: Path
    name: str | None = None
    input_size: tuple[int, int, int] | None = None
    checkpoint: Path | None = None
    task: str = ""
    precision: str = "auto"
    budget: float | None = None
    images: Path | None = None
    device: str = "auto"
    max_tuning_seconds: float | None = None
    timeout: float = 1800.0
    trust_checkpoint: bool = False
    trust_repository: bool = False

    def __post_init__(self) -> None:
        if (self.max_tuning_seconds is not None and self.max_tuning_seconds <= 0) or self.timeout <= 0:
            raise ValueError("max_tuning_seconds and timeout must be positive")
        if self.budget is not None and self.images is None:
            raise ValueError("a budget is held to on real images: give --images FILE.npz, too")
        if self.device not in _DEVICES:
            raise ValueError(f"device must be one of {', '.join(_DEVICES)}, got {self.device!r}")
        if self.input_size is not None and any(size < 1 for size in self.input_size):
            raise ValueError(f"input_size must be positive, got {self.input_size}")


def compile_model(
    reference: str, config: CompileConfig, place: Callable[[Path, Path, str], Path], *, console: Console | None = None
) -> ModelPackaged:
    """Build the model in a confined subprocess, compile it, and have it written to `config.out/NAME`.

    The user's code reaches nothing of `config.out`: `place` is given the folder where the package was made, `config.out` and
    the model's name, and says where it put it. Without a checkpoint the weights are as the constructor leaves them, and parity
    is proved on a randomized copy.
    Raises MigrateError saying what failed, AmbiguousError where `--input-size` must be given.
    """
    if config.checkpoint is not None and not config.checkpoint.is_file():
        raise MigrateError(f"{config.checkpoint}: no such checkpoint")
    recipe = recipe_of(reference, config.checkpoint)
    images = None if config.images is None else read_images(config.images)
    out = config.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    limits = Limits(timeout=config.timeout, memory_bytes=psutil.virtual_memory().total * 3 // 4)
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch, Stages(console) as stages:
        sandbox = Sandbox(
            scratch=Path(scratch), limits=limits, trusted=config.trust_checkpoint,
            trust_repository=trust_repository(config.trust_repository), readable=_readable(recipe, config.checkpoint),
        )  # fmt: skip
        with WorkerPool(sandbox) as pool:
            stages.start("Building the model")
            seen = inspect(recipe, config.input_size, pool.sandbox)
            if isinstance(seen, Failed):
                raise _error(reference, seen)
            name = config.name or model_name(seen.class_name)
            request = Package(
                recipe=recipe,
                name=name,
                out="",
                input=config.input_size or _only_size(seen),
                task=config.task,
                precision=config.precision,
                budget=config.budget,
                device=config.device,
                max_tuning_seconds=config.max_tuning_seconds,
                randomize=config.checkpoint is None and images is None,  # who gives images has weights that they fit
                provenance={"reference": reference, "checkpoint": str(config.checkpoint) if config.checkpoint else None},
            )
            made = package(request, images, pool.sandbox, stages.start("Capturing, tuning, proving"), own_outputs=False)
        if not isinstance(made, ModelPackaged):
            raise _error(reference, made)
        return replace(made, artifact=str(place(sandbox.models, out, name)))


def read_images(path: Path) -> Recorded:
    """The inputs "images" [n, C, H, W] and their "labels", if any, of an .npz file. Raises MigrateError where it is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file["images"], file["labels"] if "labels" in file.files else None
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise MigrateError(f"{path} is no .npz file with an array 'images': {error}") from None
    if images.ndim != 4 or images.dtype.kind != "f" or (labels is not None and len(labels) != len(images)):
        counted = "" if labels is None else f" for {len(labels)} labels"
        raise MigrateError(f"{path}: 'images' must be floats of shape [n, C, H, W], got {images.dtype} {images.shape}{counted}")
    return Recorded(inputs=images, outputs=np.empty((0,), np.float32), targets=labels)


def recipe_of(reference: str, checkpoint: Path | None) -> Recipe:
    """The recipe of a model named by file or module. Raises MigrateError when it names none."""
    place, _, expression = reference.partition(":")
    if not place or not expression:
        raise MigrateError(f"{reference!r} names no model; write FILE.py:EXPRESSION or package.module:EXPRESSION")
    try:
        ast.parse(expression, mode="eval")
    except SyntaxError:
        raise MigrateError(f"{expression!r} in {reference!r} is not a Python expression") from None
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise MigrateError(f"{place}: no such file")
        root, script, module = path.parent, path.name, path.stem
    else:
        root, script, module = Path.cwd(), "compile.py", place
    source = SOURCE.format(module=module, expression=expression)
    if checkpoint is not None:
        source += LOAD.format(path=os.fspath(checkpoint.resolve()))
    return Recipe(root=str(root), script=script, source=source, expression="model")


def _readable(recipe: Recipe, checkpoint: Path | None) -> tuple[Path, ...]:
    """The folder of the model's code, without the hidden files of a home folder, and the checkpoint."""
    root, home = Path(recipe.root), Path.home().resolve()
    shown = [root]
    if home.is_relative_to(root):
        shown = [path for path in root.iterdir() if not path.name.startswith(".") and path.resolve() != home]
    return (*shown, *([checkpoint.resolve()] if checkpoint is not None else []))


def _error(reference: str, answer: Response) -> MigrateError:
    if not isinstance(answer, Failed):
        return MigrateError(f"{reference}: the worker answered something else: {type(answer).__name__}")
    # a failed capture lists its obstacles in the error, each with its own place
    where = f"{answer.where}: " if answer.where and not answer.error.startswith(answer.where) else ""
    return MigrateError(f"{reference}: {where}{answer.error}")


def _only_size(seen: Inspected) -> Row:
    """The size the model itself proves unique; nothing is guessed."""
    if seen.input is not None:
        return seen.input
    sizes = [",".join(map(str, size)) for size in seen.candidates]
    raise AmbiguousError("the model takes inputs of several sizes", candidates=sizes, flag="--input-size")
