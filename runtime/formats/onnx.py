"""ONNX: one file with its weights; labels, preprocessing and task in `metadata_props`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BackendError
from ...specs import FP32, INT8, Precision
from .. import backends
from ..backends.shared.onnx_graph import read_graph
from ..base.session import Session, Target
from . import Format

if TYPE_CHECKING:
    from .shared.packaged import Packaged


@dataclass(frozen=True, kw_only=True)
class Onnx(Format):
    name: str = "onnx"
    suffix: str = ".onnx"
    libraries: tuple[str, ...] = ("onnx", "onnxruntime")
    precisions: tuple[Precision, ...] = (FP32, INT8)

    def write(self, package: Packaged, precision: Precision, path: Path) -> None:
        import onnx

        source = package.onnx(precision)
        if source.with_name(f"{source.name}.data").exists():
            raise BackendError("the model has more than 2 GB, which one ONNX file does not hold; --to openvino does")
        model = read_graph(source)
        onnx.helper.set_model_props(model, package.metadata(precision))
        model.producer_name = "headrace"
        onnx.save_model(model, str(path))

    def open(self, path: Path, package: Packaged) -> Session:
        return backends.get("onnxruntime").open(path.parent, Target(), [path.name])


FORMAT = Onnx()
