"""Transforms that resize, wherever a repository composes them: data of one size need none, the pictures of a prediction do."""

from __future__ import annotations

import ast
import itertools
import posixpath
from collections.abc import Iterator
from pathlib import Path

from ..reading.calls import SliceError
from ..reading.recipe import TransformRecipe
from ..reading.scopes import Module, last_name
from ..slicing.interprocedural import Point, ProgramSlicer
from ..slicing.liveness import Options
from ..slicing.recipes import recipe, write
from ..survey.survey import ProjectIndex
from ..survey.transforms import is_composed, is_random

_MOST = 3
"""So many are offered."""


def resizing_transforms(root: Path, known: ProjectIndex, mode: str) -> list[TransformRecipe]:
    """The composed transforms that resize and do not augment, of images in a `mode` of Pillow's; of two that read alike the
    first."""
    found = itertools.chain.from_iterable(_of(root, known, module, mode) for module in known.repository.modules.values())
    alike: dict[str, TransformRecipe] = {}
    for made in itertools.islice(found, _MOST * _MOST):
        alike.setdefault(made.source, made)
    return list(alike.values())[:_MOST]


def _of(root: Path, known: ProjectIndex, module: Module, mode: str) -> Iterator[TransformRecipe]:
    for node in module.calls:
        if not is_composed(node) or is_random(node):
            continue
        if not any(isinstance(step, ast.Call) and last_name(step.func) == "Resize" for step in ast.walk(node)):
            continue
        slicer = ProgramSlicer(known.repository, known.calls, module, Options(seeds=False, data=False, checkpoints=False))
        try:
            program = slicer.build(Point(module, module.function_of(node), module.statement_of(node), node))
        except SliceError:
            continue
        written = write(program, known.repository, posixpath.dirname(module.path), "transform")
        made = recipe(root, module, known.repository, written, ())
        yield TransformRecipe(**vars(made), takes="image", convert=mode, source_at=f"{module.path}:{node.lineno}")
