"""ONNX Runtime: the portable graph, on CPU everywhere and on CUDA where its provider is installed. Opens without torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BackendError
from ...specs import FP32, INT8, Precision
from ..lowering.quantize import write_portable
from . import unsupported
from .shared.onnx_session import gpu, open_onnx

if TYPE_CHECKING:
    from ..base.session import Session, Target
    from ..capture.capture import CapturedGraph
    from ..lowering.portable import PortableGraph
    from . import Records

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


@dataclass(frozen=True)
class OnnxRuntimeBackend:
    """Reads model.onnx, which it shares with the openvino backend and with Triton."""

    name: str = "onnxruntime"
    format: str = "onnx"
    fixed_batch: bool = False
    streams: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[Precision, ...] = (FP32, INT8)
    preparation_seconds: float = 1.0

    def missing(self) -> str | None:
        if importlib.util.find_spec("onnxruntime"):
            return None
        return "onnxruntime is not installed: pip install onnxruntime (or onnxruntime-gpu for CUDA)"

    def supports(self, target: Target) -> str | None:
        if why := self.missing() or unsupported(self, target):
            return why
        if target.device != "cpu" and target.precision.is_int8:
            return "onnxruntime's int8 kernels run on the CPU only"
        import onnxruntime

        if _PROVIDERS[target.device] not in onnxruntime.get_available_providers():
            return f"the installed onnxruntime has no {_PROVIDERS[target.device]}: pip install onnxruntime-gpu"
        return None

    def prepare(
        self, captured: CapturedGraph | PortableGraph, target: Target, directory: Path, records: Records = None
    ) -> list[str]:
        return write_portable(captured, directory, self.name, target.precision, records)

    def open(self, directory: Path, target: Target, files: Sequence[str]) -> Session:
        if why := self.supports(target):
            raise BackendError(why)
        options = {} if target.device == "cpu" else {"device_id": gpu(target)}
        return open_onnx(directory / files[0], target, [(_PROVIDERS[target.device], options)])


BACKEND = OnnxRuntimeBackend()
