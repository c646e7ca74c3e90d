"""ONNX Runtime: the portable graph, on CPU everywhere and on CUDA where its provider is installed. Opens without torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...specs import FP32, INT8, Precision
from ..lowering.quantize import write_portable
from . import Backend
from .shared.onnx_session import gpu, open_onnx

if TYPE_CHECKING:
    from ..base.session import Session, Target
    from . import AnyGraph, Records

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


@dataclass(frozen=True, kw_only=True)
class OnnxRuntimeBackend(Backend):
    """Reads model.onnx, which it shares with the openvino backend and with Triton."""

    name: str = "onnxruntime"
    format: str = "onnx"
    runs_code: bool = False
    libraries: tuple[str, ...] = ("onnxruntime",)
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[Precision, ...] = (FP32, INT8)
    preparation_seconds: float = 1.0

    def missing(self) -> str | None:
        if importlib.util.find_spec("onnxruntime"):
            return None
        return "onnxruntime is not installed: pip install onnxruntime (or onnxruntime-gpu for CUDA)"

    def _lacks(self, target: Target) -> str | None:
        if target.device != "cpu" and target.precision.is_int8:
            return "onnxruntime's int8 kernels run on the CPU only"
        import onnxruntime

        if _PROVIDERS[target.device] not in onnxruntime.get_available_providers():
            return f"the installed onnxruntime has no {_PROVIDERS[target.device]}: pip install onnxruntime-gpu"
        return None

    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        return write_portable(captured, directory, self.name, target.precision, records)

    def _open(self, paths: list[Path], target: Target) -> Session:
        options = {} if target.device == "cpu" else {"device_id": gpu(target)}
        return open_onnx(paths[0], target, [(_PROVIDERS[target.device], options)])


BACKEND = OnnxRuntimeBackend()
