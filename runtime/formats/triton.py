"""Triton's model repository: the model as ONNX, its decoder and the ensemble of both, which answers image bytes with labels."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...scratch import ScratchFolder
from ...specs import FP32, INT8, Precision
from .. import backends
from ..artifact.manifest import ONNX_FILE
from ..artifact.package import write_package
from ..base.session import Session, Target
from ..base.task import SINGLE_LABEL
from . import Format

if TYPE_CHECKING:
    from .shared.packaged import Packaged


@dataclass(frozen=True, kw_only=True)
class Triton(Format):
    name: str = "triton"
    repository: bool = True
    libraries: tuple[str, ...] = ("google.protobuf", "onnxruntime")
    precisions: tuple[Precision, ...] = (FP32, INT8)

    def write(self, package: Packaged, precision: Precision, path: Path) -> None:
        artifact, source = package.artifact, package.onnx(precision)
        data = source.with_name(f"{source.name}.data")
        with ScratchFolder() as staging:
            shutil.copyfile(source, staging / ONNX_FILE)
            if data.exists():
                shutil.copyfile(data, staging / data.name)
            write_package(
                path / artifact.name,
                name=artifact.name,
                files_from=staging,
                signature=artifact.signature,
                preprocessing=artifact.preprocessing,
                task=artifact.task,
                labels={head.output: head.labels for head in artifact.task.heads if head.labels} or None,
                parity=artifact.parity,
                plans=[],
                provenance={**artifact.provenance, "exported": {"precision": str(precision)}},
                max_batch_size=artifact.max_batch_size,
                answers=artifact.answers,
            )

    def open(self, path: Path, package: Packaged) -> Session:
        return backends.get("onnxruntime").open(path / package.artifact.name / "1", Target(), [ONNX_FILE])

    def remarks(self, package: Packaged, precision: Precision) -> list[str]:
        found = [] if package.artifact.preprocessing is not None else ["the preprocessing is not known: there is no decoder"]
        if any(head.kind != SINGLE_LABEL and head.classifies for head in package.artifact.task.heads):
            found.append("Triton sorts classes and knows no thresholds: which labels hold is for the client to say")
        return found


FORMAT = Triton()
