"""Run a user's script as `python SCRIPT ARGS...` does, in this process."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import torch

from ..reading.recipe import Recipe
from ..reading.source import NOTEBOOK, read_source
from .recipe import enter, load_cuda_storages_on_cpu


class Taken(BaseException):
    """A run has shown what was wanted of it."""


def rehearse(recipe: Recipe) -> None:
    """Run the script to its end. Raises whatever it raises."""
    script = enter(recipe)
    if not torch.cuda.is_available():
        load_cuda_storages_on_cpu()
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    if script.suffix == NOTEBOOK:
        text = read_source(Path(recipe.root), recipe.script).text or ""
        code = compile(text, str(script), "exec", dont_inherit=True)
    else:
        code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)  # noqa: S102 - what the user asked for
    finally:
        sys.modules["__main__"] = before
