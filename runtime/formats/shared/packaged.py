"""What an export starts from: a packaged model, with its program in the forms that formats are made of."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...._version import __version__
from ....errors import ArtifactError, BackendError, CaptureError
from ....specs import Precision
from ....trust import REMEDY
from ... import backends
from ...artifact.artifact import Artifact
from ...artifact.manifest import ONNX_FILE
from ...base.calibration import Calibration
from ...base.session import Target
from ...lowering.portable import PortableGraph
from ...tuning.random_rows import random_rows

if TYPE_CHECKING:
    import torch

    from ...capture.capture import CapturedGraph

_PROGRAM = "model.pt2"


@dataclass(frozen=True, eq=False)
class Packaged:
    """A model version, and a folder of one's own to work in. `calibration` is what int8 takes its ranges from, where the
    package holds no int8 form; `uncalibrated` why the images that were given are none."""

    artifact: Artifact
    directory: Path
    calibration: Calibration | None = None
    uncalibrated: str = ""

    @functools.cached_property
    def captured(self) -> CapturedGraph:
        """The program of torch: the packaged one where it is there and trusted, else the portable graph's, proved equal to that
        at several batches. Raises BackendError, or ArtifactError where only trust is missing."""
        from ...capture.capture import CapturedGraph, capture
        from ...capture.programs import read_program
        from .portable_module import PortableModule

        artifact, signature = self.artifact, self.artifact.signature
        example = self.example()
        if _PROGRAM in artifact.files and (artifact.trusted or not self.portable):
            if not artifact.trusted:
                raise ArtifactError(f"{artifact.name} holds torch's program alone, which runs code as it is read: {REMEDY}")
            program = read_program(artifact.path / _PROGRAM, Target())
            return CapturedGraph(program, signature, artifact.task, example=example)
        module = PortableModule(self.onnx()).eval()
        try:
            captured = capture(module, example, names=[spec.name for spec in signature.inputs])
        except CaptureError as error:
            raise BackendError(f"the portable graph cannot become a program of torch: {error}") from error
        return replace(captured, signature=signature, task=artifact.task)

    @property
    def portable(self) -> bool:
        """Whether the package holds the portable graph."""
        return ONNX_FILE in self.artifact.files

    def onnx(self, precision: Precision | None = None, *, backend: str = "onnxruntime") -> Path:
        """The portable graph's file, quantized where the precision is int8: the packaged one where there is one, of several
        that which `backend` opens. Raises BackendError."""
        artifact = self.artifact
        if not self.portable:
            why = artifact.provenance.get("no_portable_graph") or "package it again with an ONNX backend"
            raise BackendError(f"{artifact.name} holds no {ONNX_FILE}: {why}")
        if precision is None or not precision.is_int8:
            return artifact.path / ONNX_FILE
        choices = [choice for plan in artifact.plans for choice in plan.choices.values() if choice.precision.is_int8]
        for choice in sorted(choices, key=lambda choice: choice.backend != backend):
            if choice.files and choice.files[0].endswith(".onnx"):
                return artifact.path / choice.files[0]
        if self.calibration is None:
            why = self.uncalibrated or "making one takes real images: give --images DIR"
            raise BackendError(f"{artifact.name} holds no int8 form, and {why}")
        for name in (name for name in artifact.files if name.startswith(ONNX_FILE)):
            if not (self.directory / name).exists():
                (self.directory / name).symlink_to((artifact.path / name).resolve())
        graph = PortableGraph(artifact.signature, self.calibration)
        return self.directory / backends.get(backend).prepare(graph, Target(precision=precision), self.directory)[0]

    def metadata(self, precision: Precision) -> dict[str, str]:
        """What a format's metadata say of the model, as texts; all but the first four are JSON."""
        artifact, task = self.artifact, self.artifact.task
        labels = {head.output: list(head.labels) for head in task.heads if head.labels}
        found = {
            "model": artifact.name,
            "version": str(artifact.version),
            "precision": str(precision),
            "headrace": __version__,
            "task": json.dumps(task.to_json()),
            "signature": json.dumps(artifact.signature.to_json()),
        }
        if labels:
            found["labels"] = json.dumps(next(iter(labels.values())) if len(labels) == 1 else labels)
        if artifact.preprocessing is not None:
            found["preprocessing"] = json.dumps(artifact.preprocessing.to_json())
        return found

    def example(self) -> tuple[torch.Tensor, ...]:
        """Two rows of each input."""
        import torch

        return tuple(torch.from_numpy(value) for value in random_rows(self.artifact.signature, 2))
