"""A packaged model split by class into a package of several ranks, whose answers are held against the whole model's."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np

from ....errors import ArtifactError, ParityError
from ...base.task import Head
from ..agreement import Array, best_classes
from ..artifact import Artifact, load_artifact
from ..manifest import ONNX_FILE, digest
from ..package import write_package
from .cutting import cut
from .mesh import MAX_RANKS, Mesh, Part, check_model
from .session import SplitSession

_BATCHES = (1, 2, 5, 6)  # of the known rows, which are six
_TOLERANCE = 1e-6  # of a row's largest score; both compute in float32, and add the features in the same order or nearly so
_BEST = 5


def split_model(folder: Path, out: Path, ranks: int) -> tuple[Path, float]:
    """Write the model in `folder` as one of so many ranks into the models folder `out`; its own folder there, and the largest
    difference of a score from the whole model's, in shares of its row's largest.

    Raises ArtifactError where the model cannot be split, ParityError where the parts answer otherwise; nothing is written then.
    """
    artifact = load_artifact(folder)
    target = out / artifact.name
    if target.resolve() == folder.resolve():
        raise ArtifactError(f"{target} is the model that is to be split, and would be replaced; name another folder with --out")
    if ONNX_FILE not in artifact.files:
        already = "is split already" if artifact.mesh else f"holds no {ONNX_FILE}"
        raise ArtifactError(f"{folder} {already}; split the whole model's package")
    classes = artifact.signature.outputs[0].classes or 0
    try:
        check_model(artifact.signature, artifact.task)
    except ValueError as error:
        raise ArtifactError(f"{artifact.name}: {error}") from None
    if not 2 <= ranks <= min(MAX_RANKS, classes):
        raise ArtifactError(f"{artifact.name} has {classes} classes; --ranks takes 2 to {min(MAX_RANKS, classes)}, got {ranks}")
    rows = artifact.known_rows()
    if rows is None:
        raise ArtifactError(
            f"{artifact.name} takes integers, of which nobody knows what they may be; no split of it can be proved"
        )
    with tempfile.TemporaryDirectory(prefix="headrace-") as staging:
        mesh = _write_parts(artifact, Path(staging), [classes * number // ranks for number in range(ranks + 1)])
        difference = _compare(artifact, Path(staging), mesh, rows)
        write_package(
            target,
            name=artifact.name,
            files_from=Path(staging),
            signature=artifact.signature,
            preprocessing=artifact.preprocessing,
            labels={head.output: head.labels for head in artifact.task.heads if head.labels} or None,
            task=artifact.task,
            max_batch_size=artifact.max_batch_size,
            parity=artifact.parity,
            plans=[],
            provenance={**artifact.provenance, "no_portable_graph": f"it is split by class over {ranks} ranks"},
            answers=artifact.answers,
            routes=artifact.routes,
            mesh=mesh.to_json(),
        )
    return target, difference


def _write_parts(artifact: Artifact, folder: Path, ends: list[int]) -> Mesh:
    import onnx

    def save(model: onnx.ModelProto, name: str) -> str:
        try:
            onnx.save_model(model, str(folder / name))
        except ValueError:  # protobuf's limit
            raise ArtifactError(f"{name} of {artifact.name} would be larger than 2 GB; give more --ranks") from None
        return name

    bounds = list(itertools.pairwise(ends))
    trunk, graphs = cut(onnx.load(str(artifact.path / ONNX_FILE)), bounds)
    save(trunk, "trunk.onnx")
    files = [save(graph, f"part-{number}.onnx") for number, graph in enumerate(graphs)]
    parts = (
        Part(file=file, classes=end - first, digest=digest(folder / file, inside=folder))
        for file, (first, end) in zip(files, bounds, strict=True)
    )
    return Mesh(trunk="trunk.onnx", parts=tuple(parts))


def _compare(artifact: Artifact, folder: Path, mesh: Mesh, rows: list[Array]) -> float:
    """The largest difference of a score of the parts from the whole model's, in shares of its row's largest."""
    plan = artifact.portable_plan("the parts are compared with it")
    whole = artifact.open_choice(plan, plan.first())
    try:
        wanted = {batch: whole.run([value[:batch] for value in rows])[0] for batch in _BATCHES}
    finally:
        whole.close()
    split = SplitSession(folder, mesh, plan.target(1), backend="onnxruntime")
    try:
        return max(
            _difference(split, [value[:batch] for value in rows], wanted[batch], artifact.task.heads[0]) for batch in _BATCHES
        )
    finally:
        split.close()


def _difference(split: SplitSession, rows: list[Array], wanted: Array, head: Head) -> float:
    given = split.run(rows)[0]
    largest = np.abs(wanted).max(axis=1, keepdims=True)
    difference = float((np.abs(given - wanted) / np.where(largest > 0, largest, 1)).max())
    if given.shape != wanted.shape or not difference <= _TOLERANCE:
        raise ParityError(f"scores of the parts differ by {difference:.1e} of a row's largest (allowed: {_TOLERANCE:.0e})")
    best, known = split.best(rows, _BEST), best_classes(head, given, _BEST)
    if not (np.array_equal(best[0], known[0]) and np.allclose(best[1], known[1], rtol=_TOLERANCE, atol=0)):
        raise ParityError("the best classes that the ranks find are not those of all scores")
    return difference
