"""The package that is to be split: opened, asked for the answers that its parts are held to, and written again as these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArtifactError, ParityError
from ...backends.shared.onnx_graph import read_graph
from ...base.session import Session
from ..agreement import Array
from ..artifact import Artifact, load_artifact
from ..manifest import ONNX_FILE
from ..package import write_package
from ..plan import Plan

if TYPE_CHECKING:
    from onnx import ModelProto

BATCHES = (1, 2, 5, 6)  # of the known rows, which are six
TOLERANCE = 1e-6  # of a row's largest value; both compute in float32, and add in the same order or nearly so


@dataclass(frozen=True)
class Whole:
    """A package with a portable graph, the `rows` that it is known by, and the folder that it is to be written to in parts."""

    artifact: Artifact
    rows: list[Array]
    target: Path

    @classmethod
    def open(cls, folder: Path, out: Path) -> Whole:
        """The model in `folder`, for the models folder `out`. Raises ArtifactError where nothing of it can be proved."""
        artifact = load_artifact(folder)
        target = out / artifact.name
        if target.resolve() == folder.resolve():
            raise ArtifactError(
                f"{target} is the model that is to be split, and would be replaced; name another folder with --out"
            )
        if ONNX_FILE not in artifact.files:
            already = "is split already" if artifact.mesh else f"holds no {ONNX_FILE}"
            raise ArtifactError(f"{folder} {already}; split the whole model's package")
        rows = artifact.known_rows()
        if rows is None:
            raise ArtifactError(
                f"{artifact.name} takes integers, of which nobody knows what they may be; no split of it can be proved"
            )
        return cls(artifact, rows, target)

    def graph(self) -> ModelProto:
        """The portable graph, with its weights. Raises BackendError."""
        return read_graph(self.artifact.path / ONNX_FILE)

    def plan(self) -> Plan:
        """What computes the answers that the parts' are compared with. Raises BackendError."""
        return self.artifact.portable_plan("the parts are compared with it")

    def answers(self) -> dict[int, list[Array]]:
        """What the whole model gives for the first so many rows, for each of the `BATCHES`."""
        plan = self.plan()
        whole = self.artifact.open_choice(plan, plan.first())
        try:
            return {batch: whole.run([value[:batch] for value in self.rows]) for batch in BATCHES}
        finally:
            whole.close()

    def write(self, files: Path, mesh: dict[str, Any], why: str) -> None:
        """The package of the files in that folder; `why` says why none of them is a portable graph."""
        artifact = self.artifact
        write_package(
            self.target,
            name=artifact.name,
            files_from=files,
            signature=artifact.signature,
            preprocessing=artifact.preprocessing,
            labels={head.output: head.labels for head in artifact.task.heads if head.labels} or None,
            task=artifact.task,
            max_batch_size=artifact.max_batch_size,
            parity=artifact.parity,
            plans=[],
            provenance={**artifact.provenance, "no_portable_graph": why},
            answers=artifact.answers,
            routes=artifact.routes,
            mesh=mesh,
        )


def save_part(model: ModelProto, path: Path, remedy: str) -> None:
    """Write a part's graph. Raises ArtifactError, with what to do, where it is larger than such a file can be."""
    import onnx

    try:
        onnx.save_model(model, str(path))
    except ValueError:  # protobuf's limit
        raise ArtifactError(f"{path.name} would be larger than 2 GB; {remedy}") from None


def largest_difference(session: Session, rows: list[Array], answers: dict[int, list[Array]]) -> float:
    """Of what a session of the parts gives for the rows from the whole model's `answers`, in shares of the largest value of a
    row. Raises ParityError where that is more than `TOLERANCE`, or a value that is no float differs at all."""
    found = 0.0
    for batch, wanted in answers.items():
        for index, (own, value) in enumerate(zip(session.run([row[:batch] for row in rows]), wanted, strict=True)):
            difference = _difference(own, value)
            if not difference <= TOLERANCE:
                raise ParityError(
                    f"output {index} of the parts differs by {difference:.1e} of a row's largest value from the whole "
                    f"model's, at {batch} rows (allowed: {TOLERANCE:.0e})"
                )
            found = max(found, difference)
    return found


def _difference(given: Array, wanted: Array) -> float:
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(given, wanted) else float("inf")
    own: Array = given.reshape(len(given), -1).astype(np.float64)
    value: Array = wanted.reshape(len(wanted), -1).astype(np.float64)
    largest = np.abs(np.where(np.isfinite(value), value, 0)).max(axis=1, keepdims=True, initial=0)
    with np.errstate(invalid="ignore"):
        apart = np.where(own == value, 0, np.abs(own - value))
    return float((apart / np.where(largest > 0, largest, 1)).max(initial=0))
