"""OpenVINO's IR: a folder with NAME.xml and NAME.bin; labels, preprocessing and task in `rt_info`, below "headrace"."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...specs import FP16, FP32, INT8, Precision
from .. import backends
from ..backends import loading
from ..base.openvino_library import import_openvino
from ..base.session import Session, Target
from . import Format

if TYPE_CHECKING:
    from .shared.packaged import Packaged


@dataclass(frozen=True, kw_only=True)
class OpenVino(Format):
    name: str = "openvino"
    libraries: tuple[str, ...] = ("openvino",)
    precisions: tuple[Precision, ...] = (FP32, FP16, INT8)

    def write(self, package: Packaged, precision: Precision, path: Path) -> None:
        source = package.onnx(precision, backend=self.name)
        with loading(source, "openvino"):
            openvino = import_openvino()
            model = openvino.Core().read_model(str(source))
            for name, text in package.metadata(precision).items():
                model.set_rt_info(text, ["headrace", name])
            target = path / f"{package.artifact.name}.xml"
            openvino.save_model(model, str(target), compress_to_fp16=precision == FP16)

    def open(self, path: Path, package: Packaged) -> Session:
        return backends.get("openvino").open(path, Target(), [f"{package.artifact.name}.xml"])

    def remarks(self, package: Packaged, precision: Precision) -> list[str]:
        stored = "the weights are stored in fp16; what is computed in is whoever opens it to say (INFERENCE_PRECISION_HINT)"
        return super().remarks(package, precision) + ([stored] if precision == FP16 else [])


FORMAT = OpenVino()
