"""How images become a model's input: its evaluation transform, tried on images, where it ends in what the model takes."""

from __future__ import annotations

from dataclasses import replace
from typing import overload

from ....specs import Preprocessing, Resize
from ...proving.trace_transform import Traced, confirm, row_shape, trace
from ...proving.worker_protocol import Row
from ...reading.recipe import TransformRecipe
from ...resolving.mismatch import trained_otherwise
from ...resolving.resized import resizing_transforms
from ...resolving.resolved import Resolved
from ...survey.survey import project_index
from ..migration import Migration


def traced(migration: Migration, resolved: Resolved) -> Traced:
    """What the transform does that the scripts evaluate with, as its source is read or as their run showed it."""
    if resolved.transform_recipe is None:
        return Traced(why="no evaluation transform was found in the scripts")
    stated = resolved.stated_transform
    if stated is None or resolved.transform_recipe.live is None:
        return _tried(migration, resolved.transform_recipe)
    read, recipe = _tried(migration, stated), resolved.transform_recipe
    if read.candidates:
        seen = _tried(migration, recipe, read)
        if seen is None or seen.candidates:
            return seen or read
        # What the sources state, for another script perhaps, is not what the model's images go through.
        call = resolved.chain[-1]
        recipe = replace(recipe, source_at=f"{call.path}:{call.line}")
        return replace(_tried(migration, recipe), source=recipe.source_at)
    found = _tried(migration, recipe)
    return found if found.candidates else replace(read, why=found.why)


@overload
def _tried(migration: Migration, recipe: TransformRecipe) -> Traced: ...
@overload
def _tried(migration: Migration, recipe: TransformRecipe, read: Traced) -> Traced | None: ...


def _tried(migration: Migration, recipe: TransformRecipe, read: Traced | None = None) -> Traced | None:
    """What a transform does, tried once; with `read` only whether it does that, which takes a run but few images."""
    recipe = recipe.in_copy(migration.tree)
    known = migration.traced
    if (recipe, read) not in known:
        migration.stages.start("Recovering the preprocessing" if read is None else "Confirming the preprocessing")
        if recipe.live is not None:
            migration.fresh_tree()  # the script runs again
        found = trace(recipe, migration.sandbox) if read is None else confirm(recipe, read, migration.sandbox)
        known[recipe, read] = found
    return known[recipe, read]


def preprocessing_of(migration: Migration, resolved: Resolved, found: Traced, row: Row) -> tuple[Preprocessing | None, str]:
    """The recovered preprocessing that ends in the model's input; None, with a finding and why, when none does."""
    for candidate in found.candidates:
        fits = row_shape(candidate)
        if fits == row or (fits is None and len(candidate.mean) == row[0]):
            for note in found.notes:
                migration.remark("PS509", note, "note", candidate.source)
            _compare_with_training(migration, resolved, candidate)
            return _sized(migration, candidate, row), ""
    sizes = ", ".join("x".join(map(str, row_shape(candidate) or ())) or "any size" for candidate in found.candidates)
    why = found.why or f"the transform gives {sizes}, the model takes {'x'.join(map(str, row))}"
    source = found.source or (resolved.transform_recipe.source_at if resolved.transform_recipe is not None else "")
    message = f"no preprocessing is known, so the model takes tensors, not images: {why}"
    script = resolved.script.path if resolved.script is not None else ""
    predict = (other for other in migration.surveyed.scripts if "predict" in other.roles and "train" not in other.roles)
    if (other := next((other.path for other in predict if other.path != script), None)) is not None:
        message += f"; {other} predicts as well: --entry {other} takes the model and its preprocessing from there"
    migration.remark("PS504", message, "warning", source)
    return None, migration.plain(why)


def _sized(migration: Migration, made: Preprocessing, row: Row) -> Preprocessing:
    """What is done to images of one size, with the resize to it before, where the repository has a transform that does so and
    nothing else besides: it is for the pictures of a prediction, and leaves those of the data as they are."""
    if made.geometry:
        return made
    for recipe in resizing_transforms(migration.surveyed.root, project_index(migration.surveyed), made.mode):
        for other in _tried(migration, recipe).candidates:
            (step,) = other.geometry if len(other.geometry) == 1 else (None,)
            if isinstance(step, Resize) and other.row_size == row[1:] and replace(other, geometry=()) == made:
                message = (
                    f"evaluation ({made.source}) takes images of {row[1]}x{row[2]} as they are; {other.source} does the same "
                    "after a resize to that, and so does the package"
                )
                migration.remark("PS509", message, "note", other.source)
                return other
    return made


def _compare_with_training(migration: Migration, resolved: Resolved, made: Preprocessing) -> None:
    """Remark when the training transform of the same file or script states another mean or standard deviation."""
    modules = project_index(migration.surveyed).repository.modules
    paths = [made.source.rpartition(":")[0], resolved.script.path if resolved.script is not None else ""]
    near = [modules[path] for path in dict.fromkeys(paths) if path in modules]
    per_pixel = made.scale * 255  # transforms state their numbers for pixels between 0 and 1
    numbers = tuple(value / per_pixel for value in made.mean), tuple(value / per_pixel for value in made.std)
    found = trained_otherwise(numbers, near)
    if found is not None:
        path, line, (mean, std) = found
        message = (
            f"training normalizes with mean {mean} and std {std}, evaluation ({made.source}) with other numbers; "
            "the package does what evaluation does"
        )
        migration.remark("PS530", message, "warning", f"{path}:{line}")
