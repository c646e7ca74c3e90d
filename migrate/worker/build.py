"""The model that a recipe means: taken live from a run of its script, or built by a part of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from ..reading.recipe import Recipe
from . import recipe as construction
from .live.model import take_model
from .rehearsal.imports import loaded_under

_OF_ALL = frozenset(["__main__", "headrace", "numpy", "torch"]) | sys.stdlib_module_names
"""What a process that packages models cannot do without, or load twice."""


def build_model(recipe: Recipe, notes: list[str] | None = None) -> torch.nn.Module:
    """The model without parallel wrappers, in evaluation mode; `notes` gets a sentence for each thing that was absent and not
    needed, or is taken otherwise than the script has it. Raises SandboxError naming the user's file and line."""
    with _own_modules_first(Path(recipe.root) / recipe.directory / recipe.script):
        return take_model(recipe, notes) if recipe.live is not None else construction.build_model(recipe, notes)


@contextlib.contextmanager
def _own_modules_first(script: Path) -> Iterator[None]:
    """Have what lies beside a script come before what is installed under the same name, as it does where Python starts with
    the script, though a server of many requests has loaded that before."""
    beside = script.parent
    own = {path.stem for path in beside.glob("*.py")} | {path.parent.name for path in beside.glob("*/__init__.py")}
    held = {name: sys.modules[name] for name in loaded_under(own - _OF_ALL)}
    for name in held:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(held)
