"""ONNX Runtime: the portable graph, on CPU everywhere and on CUDA where its provider is installed. Opens without torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ..portable import write_onnx
from ..quantise import write_calibrated
from . import unsupported

if TYPE_CHECKING:
    import numpy as np

    from ..capture import CapturedGraph
    from ..portable import PortableGraph
    from ..session import Session, Target

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_FATAL = 4


@dataclass(frozen=True)
class OnnxRuntimeBackend:
    """Reads model.onnx, which it shares with the openvino backend and with Triton."""

    name: str = "onnxruntime"
    format: str = "onnx"
    fixed_batch: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    precisions: tuple[str, ...] = ("fp32", "int8")
    preparation_seconds: float = 1.0

    def missing(self) -> str | None:
        if importlib.util.find_spec("onnxruntime"):
            return None
        return "onnxruntime is not installed: pip install onnxruntime (or onnxruntime-gpu for CUDA)"

    def supports(self, target: Target) -> str | None:
        if why := self.missing() or unsupported(self, target):
            return why
        if target.device != "cpu" and target.precision == "int8":
            return "onnxruntime's int8 kernels run on the CPU only"
        import onnxruntime

        if _PROVIDERS[target.device] not in onnxruntime.get_available_providers():
            return f"the installed onnxruntime has no {_PROVIDERS[target.device]}: pip install onnxruntime-gpu"
        return None

    def prepare(self, captured: CapturedGraph | PortableGraph, target: Target, directory: Path) -> list[str]:
        files = write_onnx(captured, directory)
        return files if target.precision == "fp32" else write_calibrated(captured.calibration, directory)

    def open(self, directory: Path, target: Target, files: Sequence[str]) -> Session:
        if why := self.supports(target):
            raise BackendError(why)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = target.thread_count
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = _FATAL
        # Idle threads that spin would take the cores from decoding, from other sessions, and from whatever is measured next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        path = directory / files[0]
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=[_PROVIDERS[target.device]])
        except Exception as error:
            raise BackendError(f"{path.name} cannot be loaded by onnxruntime {onnxruntime.__version__}: {error}") from error
        return _OnnxRuntimeSession(session)


class _OnnxRuntimeSession:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._names = [item.name for item in session.get_inputs()]

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        if self._session is None:
            raise BackendError("this session is closed; open another")
        try:
            return list(self._session.run(None, dict(zip(self._names, inputs, strict=True))))
        except Exception as error:
            shapes = [value.shape for value in inputs]
            raise BackendError(f"onnxruntime failed on inputs of shape {shapes}: {error}") from error

    def close(self) -> None:
        self._session = None


BACKEND = OnnxRuntimeBackend()
