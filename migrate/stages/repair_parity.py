"""Whether repaired sources build a model that computes what the sources computed as they came."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import SandboxError
from ..proving.sandbox import read_left_arrays
from ..proving.worker_protocol import ComputeOutputs, Failed, Row
from ..reading.recipe import Recipe
from .migration import Migration
from .worker_client import ask

RELATIVE = 1e-5
"""Share of the largest output: a repair changes how something is written, not what is computed."""


@dataclass(frozen=True, kw_only=True)
class RepairParity:
    """`differs` says how the repaired model differs; None where it does not, or nothing could be compared."""

    differs: str | None = None


def compare_with_unrepaired(migration: Migration, name: str, recipe: Recipe, row: Row, *, fresh: bool) -> RepairParity:
    """Build the model of both sources with the same weights and compare their outputs at batches 1, 2 and 5.

    A difference is an error of the report. Where the sources as they came do not build here, a finding says that there was
    nothing to compare with.
    """
    if not migration.repairs or not migration.options.verify:
        return RepairParity()
    places = ", ".join(change.path for change in migration.repairs)
    migration.stages.start("Comparing with the sources as they came")
    before = _unrepaired(migration, recipe, row, fresh)
    if isinstance(before, str):
        message = (
            f"the repairs of {places} could not be checked against the model as it was, which does not build here: {before}"
        )
        migration.remark("PS512", message, "note")
        return RepairParity()
    after = _outputs(migration, recipe, row, before / "weights.pt")
    if isinstance(after, str) and isinstance(again := _unrepaired(migration, recipe, row, fresh), str):
        message = f"the repairs of {places} could not be checked against the model as it was, which built once and not again"
        migration.remark("PS512", f"{message}: {again}", "note")
        return RepairParity()
    why = after if isinstance(after, str) else _difference(before / "outputs.npz", after / "outputs.npz")
    if isinstance(why, str):
        what = "the model as it came can be built and run here, and the repaired one cannot" if after is why else None
        differs = migration.plain(f"after the repairs of {places} {what or 'the model differs'}: {why}")
        migration.remark("PS513", f"{name}: {differs}; leave the repairs out with --ignore", "error")
        return RepairParity(differs=differs)
    migration.remark("PS512", f"repaired ({places}), {name} computes what it did: max abs {why:.2g}, batches 1, 2, 5", "note")
    return RepairParity()


def _unrepaired(migration: Migration, recipe: Recipe, row: Row, fresh: bool) -> Path | str:
    """The folder with the outputs of the model as it came, or why there are none."""
    if any(change.path == recipe.script for change in migration.repairs):  # then the recipe's own source is a repaired one
        found = migration.unrepaired
        wanted = (found.fallback_recipe or found.recipe if fresh else found.recipe) if found is not None else None
        if wanted is None or (wanted.script, wanted.expression) != (recipe.script, recipe.expression):
            return "how it was built cannot be read from the script before its repair"
        recipe = wanted
    place = migration.scratch / "unrepaired"
    if not place.exists():
        migration.copy_to(place)
    return _outputs(migration, recipe.in_copy(place), row, None)


def _outputs(migration: Migration, recipe: Recipe, row: Row, weights: Path | None) -> Path | str:
    writable = migration.sandbox.writable_folder()
    request = ComputeOutputs(recipe=recipe, input=row, weights=str(weights) if weights else None, out=str(writable))
    answer = ask(request, migration.sandbox, writable=writable)
    return answer.error if isinstance(answer, Failed) else writable


def _difference(before: Path, after: Path) -> float | str:
    """The largest absolute difference, or in words what is more than rounding."""
    try:
        one, other = read_left_arrays(before), read_left_arrays(after)
    except SandboxError as error:
        return str(error)
    if sorted(one) != sorted(other):
        return f"{len(one)} outputs became {len(other)}"
    largest = 0.0
    for name in one:
        a, b = one[name], other[name]
        if a.shape != b.shape:
            return f"an output of shape {a.shape} became {b.shape}"
        finite = np.isfinite(a)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
            return "values that were finite are not, or the other way round, or are infinite otherwise"
        gap = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
        if gap > RELATIVE * max(1e-3, float(np.abs(a[finite]).max(initial=0.0))):
            return f"an output differs by {gap:.3g}"
        largest = max(largest, gap)
    return largest
