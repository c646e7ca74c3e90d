"""A packaged model opened to be compared with: its own answers in fp32, and the images that judge lossy forms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ArtifactError
from ...scratch import ScratchFolder
from ..artifact.artifact import Artifact, load_artifact
from ..artifact.known_answers import differs, recorded_span
from ..base.calibration import Calibration
from ..base.config import GraphConfig
from ..base.session import Session
from ..base.task import SINGLE_LABEL
from ..formats.shared.packaged import Packaged
from ..images.image_folder import read_images
from ..tuning.candidate import PARITY_ROWS
from ..tuning.judging_data import JudgingData
from ..tuning.reference import Reference
from ..tuning.retune import reference_of

_SECONDS = 20.0  # of work for images


@dataclass(frozen=True, eq=False)
class Opened:
    """The package, its answers, and a session of its lossless form. `remark` says what the images could not be used for."""

    package: Packaged
    reference: Reference
    session: Session
    remark: str = ""


@contextlib.contextmanager
def opened(folder: Path, *, images: Path | None, trusted: bool, int8: bool) -> Iterator[Opened]:
    """Load the model, read the images, and run its lossless form on rows. A part of the images sets the ranges of `int8`, where
    the package holds no such form; the others judge. Raises ArtifactError, InputError, BackendError."""
    artifact = load_artifact(folder, trusted=trusted)
    if artifact.mesh is not None:
        raise ArtifactError(
            f"{folder} is {artifact.mesh.described}, whose parts have no other form; name the whole model's package"
        )
    judging, calibration, remark = JudgingData(), None, ""
    if images is not None:
        judging = _read(artifact, images)
        if int8:
            found, _, judging = judging.split(GraphConfig(precision="fp32,int8"))
            calibration, remark = (found, "") if isinstance(found, Calibration) else (None, found)
    plan = artifact.lossless_plan()
    with ScratchFolder() as directory:
        session = artifact.open_choice(plan, plan.first())
        try:
            if why := changed(artifact, session):
                raise ArtifactError(f"{artifact.name} does not answer as when it was packaged: {why}")
            reference = reference_of(
                session,
                artifact.signature,
                artifact.task,
                rows=PARITY_ROWS,
                judging=judging,
                seconds=_SECONDS,
                span=recorded_span(artifact.answers),
            )
            yield Opened(Packaged(artifact, directory, calibration, remark), reference, session, remark)
        finally:
            session.close()


def changed(artifact: Artifact, session: Session) -> str | None:
    """How a session's answers differ from those that were recorded when the model was packaged; None where they do not."""
    rows = artifact.known_rows() if artifact.answers is not None else None
    if artifact.answers is None or rows is None:
        return None
    return differs(artifact.answers, session.run(rows)[int(artifact.answers["output"])])


def _read(artifact: Artifact, images: Path) -> JudgingData:
    if artifact.preprocessing is None:
        raise ArtifactError(f"{artifact.imageless}, so {images} cannot be read for it")
    found, labels = read_images(images, artifact.preprocessing, artifact.labels, pixels=artifact.signature.takes_pixels)
    # Folders name one class for each image.
    single = artifact.task.heads[artifact.task.primary].kind == SINGLE_LABEL
    return JudgingData((found,), labels if single else None)
