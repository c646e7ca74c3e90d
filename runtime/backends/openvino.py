"""OpenVINO on x86 and ARM CPUs; reads the portable graph. Opens without torch.

The graph keeps its dynamic batch: on ResNet-50 (batch 1 and 4, fp32 and bf16, interleaved) a graph reshaped to the batch
was within run-to-run noise of the dynamic one after its first call, and would cost one compilation and one set of weights
per size.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ..portable import write_onnx
from . import unsupported

if TYPE_CHECKING:
    import numpy as np

    from ..capture import CapturedGraph
    from ..session import Session, Target

# The hint must be given for fp32 too: on CPUs with bfloat16 instructions OpenVINO chooses bf16 by itself.
_HINTS = {"fp32": "f32", "bf16": "bf16"}
_CAPABILITIES = {"fp32": "FP32", "bf16": "BF16"}


@dataclass(frozen=True)
class OpenVinoBackend:
    """Reads model.onnx; the precision is a hint at load, so fp32 and bf16 share the file."""

    name: str = "openvino"
    devices: tuple[str, ...] = ("cpu",)
    precisions: tuple[str, ...] = ("fp32", "bf16")
    preparation_seconds: float = 1.0

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("openvino") else "openvino is not installed: pip install openvino"

    def supports(self, target: Target) -> str | None:
        if why := self.missing() or unsupported(self, target):
            return why
        if _CAPABILITIES[target.precision] not in _capabilities():
            return f"this CPU has no {target.precision} instructions that OpenVINO could use"
        return None

    def prepare(self, captured: CapturedGraph, target: Target, directory: Path) -> list[str]:
        return write_onnx(captured, directory)

    def open(self, directory: Path, target: Target, files: Sequence[str]) -> Session:
        if why := self.supports(target):
            raise BackendError(why)
        path = directory / files[0]
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[target.precision],
            "INFERENCE_NUM_THREADS": target.thread_count,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,  # several sessions in one process would be pinned to the same cores
        }
        try:
            compiled = _core().compile_model(str(path), "CPU", settings)
            return _OpenVinoSession(compiled.create_infer_request(), len(compiled.outputs))
        except Exception as error:
            raise BackendError(f"{path.name} cannot be loaded by openvino: {error}") from error


class _OpenVinoSession:
    def __init__(self, request: Any, outputs: int) -> None:
        self._request = request
        self._outputs = outputs

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        if self._request is None:
            raise BackendError("this session is closed; open another")
        import numpy as np

        try:
            # The request reads the caller's memory during the call, and its results are copied out before the next one.
            results = self._request.infer(
                [np.ascontiguousarray(value) for value in inputs], share_inputs=True, share_outputs=False
            )
            return [results[index] for index in range(self._outputs)]
        except Exception as error:
            raise BackendError(f"openvino failed on inputs of shape {[value.shape for value in inputs]}: {error}") from error

    def close(self) -> None:
        self._request = None


@functools.cache
def _core() -> Any:
    import openvino

    return openvino.Core()


@functools.cache
def _capabilities() -> frozenset[str]:
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))


BACKEND = OpenVinoBackend()
