"""A packaged model split by class into a package of several ranks, whose answers are held against the whole model's."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from ....errors import ArtifactError, ParityError
from ....scratch import ScratchFolder
from ..agreement import best_classes
from ..manifest import digest
from .cutting import cut
from .mesh import MAX_RANKS, Mesh, Part, check_model
from .session import SplitSession
from .whole import BATCHES, TOLERANCE, Whole, largest_difference, save_part

_BEST = 5


def split_model(folder: Path, out: Path, ranks: int) -> tuple[Path, float]:
    """Write the model in `folder` as one of so many ranks into the models folder `out`; its own folder there, and the largest
    difference of a score from the whole model's, in shares of its row's largest.

    Raises ArtifactError where the model cannot be split, ParityError where the parts answer otherwise; nothing is written then.
    """
    whole = Whole.open(folder, out)
    artifact = whole.artifact
    classes = artifact.signature.outputs[0].classes or 0
    try:
        check_model(artifact.signature, artifact.task)
    except ValueError as error:
        raise ArtifactError(f"{artifact.name}: {error}") from None
    if not 2 <= ranks <= min(MAX_RANKS, classes):
        raise ArtifactError(f"{artifact.name} has {classes} classes; --ranks takes 2 to {min(MAX_RANKS, classes)}, got {ranks}")
    with ScratchFolder() as staging:
        mesh = _write_parts(whole, staging, [classes * number // ranks for number in range(ranks + 1)])
        difference = _compare(whole, staging, mesh)
        whole.write(staging, mesh.to_json(), f"it is {mesh.described}")
    return whole.target, difference


def _write_parts(whole: Whole, folder: Path, ends: list[int]) -> Mesh:
    bounds = list(itertools.pairwise(ends))
    trunk, graphs = cut(whole.graph(), bounds)
    names = ["trunk.onnx", *(f"part-{number}.onnx" for number in range(len(bounds)))]
    for name, graph in zip(names, itertools.chain([trunk], graphs), strict=True):
        save_part(graph, folder / name, f"give {whole.artifact.name} more --ranks")
    parts = (
        Part(file=file, classes=end - first, digest=digest(folder / file, inside=folder))
        for file, (first, end) in zip(names[1:], bounds, strict=True)
    )
    return Mesh(trunk=names[0], parts=tuple(parts))


def _compare(whole: Whole, folder: Path, mesh: Mesh) -> float:
    """The largest difference of a score of the parts from the whole model's, in shares of its row's largest."""
    split = SplitSession(folder, mesh, whole.plan().target(1), backend="onnxruntime")
    try:
        difference = largest_difference(split, whole.rows, whole.answers())
        for batch in BATCHES:
            rows = [value[:batch] for value in whole.rows]
            best, known = split.best(rows, _BEST), best_classes(whole.artifact.task.heads[0], split.run(rows)[0], _BEST)
            if not (np.array_equal(best[0], known[0]) and np.allclose(best[1], known[1], rtol=TOLERANCE, atol=0)):
                raise ParityError("the best classes that the ranks find are not those of all scores")
    finally:
        split.close()
    return difference
