"""TensorRT on NVIDIA GPUs, through ONNX Runtime's execution provider; reads the portable graph. Opens without torch.

Engines are built for a range of batch sizes, or for one; building takes a minute, so they are kept in the user's cache.
int8 is not offered: TensorRT wants signed symmetric activations, and the quantized graph has the unsigned ones of x86.
"""

from __future__ import annotations

import importlib.util
import logging
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import FP16, FP32, Precision
from ...trust import own_folder
from ..base.cache_folder import cache_folder
from ..lowering.portable import write_onnx
from . import Backend
from .shared.onnx_session import gpu, open_onnx

if TYPE_CHECKING:
    from ..base.session import Session, Target
    from . import AnyGraph, Records

log = logging.getLogger("headrace.cache")

_PROVIDER = "TensorrtExecutionProvider"
_WORKSPACE_BYTES = 2 << 30
_ENGINE = b"EPContext"  # the operator whose node brings an engine, or names a file of one


@dataclass(frozen=True, kw_only=True)
class TensorRtBackend(Backend):
    """Reads model.onnx; what TensorRT cannot take runs in ONNX Runtime's CUDA provider."""

    name: str = "tensorrt"
    format: str = "onnx"
    runs_code: bool = False
    libraries: tuple[str, ...] = ("tensorrt", "onnxruntime")
    fixed_batch: bool = True
    devices: tuple[str, ...] = ("cuda",)
    precisions: tuple[Precision, ...] = (FP32, FP16)
    preparation_seconds: float = 60.0

    def missing(self) -> str | None:
        if not importlib.util.find_spec("onnxruntime"):
            return "tensorrt runs through onnxruntime, which is not installed: pip install onnxruntime-gpu tensorrt"
        import onnxruntime

        if _PROVIDER not in onnxruntime.get_available_providers():
            return f"the installed onnxruntime has no {_PROVIDER}: pip install onnxruntime-gpu tensorrt"
        return None

    def _lacks(self, target: Target) -> str | None:
        return None

    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        return write_onnx(captured, directory)

    def _open(self, paths: list[Path], target: Target) -> Session:
        with paths[0].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as graph:
            if graph.find(_ENGINE) >= 0:
                raise BackendError(f"{paths[0].name} holds an engine, which is machine code; Headrace writes none")
        rest = ("CUDAExecutionProvider", {"device_id": gpu(target)})
        return open_onnx(paths[0], target, [(_PROVIDER, _options(target)), rest])


def _options(target: Target) -> dict[str, Any]:
    options: dict[str, Any] = {
        "device_id": gpu(target),
        "trt_fp16_enable": target.precision == FP16,
        "trt_max_workspace_size": _WORKSPACE_BYTES,
    }
    if folder := cache_folder():
        try:
            place = own_folder(folder / "tensorrt")
        except OSError as error:  # engines are machine code
            log.warning("engines are not kept: %s", error)
            return options
        options |= {"trt_engine_cache_enable": True, "trt_engine_cache_path": str(place), "trt_timing_cache_enable": True}
    return options


BACKEND = TensorRtBackend()
