"""OpenVINO on x86 and ARM CPUs; reads the portable graph. Opens without torch.

The graph keeps its dynamic batch unless the target names one: on ResNet-50 a graph reshaped to its batch is hardly faster, on
transformers and MobileNets it gains 5 to 45 % and costs one compilation and one set of weights per size. So it is
a candidate of its own, which the plan measures.
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
from ..quantise import write_calibrated
from ..session import FixedBatchSession
from . import unsupported

if TYPE_CHECKING:
    import numpy as np

    from ..capture import CapturedGraph
    from ..portable import PortableGraph
    from ..session import Session, Target

# The hint must be given for fp32 too: on CPUs with bfloat16 instructions OpenVINO chooses bf16 by itself. For a quantised
# graph it is what the operators between the integer ones compute in.
_HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16", "int8": "f32", "int8+bf16": "bf16"}
_CAPABILITIES = {"fp32": ("FP32",), "bf16": ("BF16",), "fp16": ("FP16",), "int8": ("INT8",), "int8+bf16": ("INT8", "BF16")}


@dataclass(frozen=True)
class OpenVinoBackend:
    """Reads model.onnx, or its quantised form; the floating-point precision is a hint at load, so those share a file."""

    name: str = "openvino"
    format: str = "onnx"
    fixed_batch: bool = True
    devices: tuple[str, ...] = ("cpu",)
    precisions: tuple[str, ...] = tuple(_HINTS)
    preparation_seconds: float = 1.0

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("openvino") else "openvino is not installed: pip install openvino"

    def supports(self, target: Target) -> str | None:
        if why := self.missing() or unsupported(self, target):
            return why
        if not _capabilities().issuperset(_CAPABILITIES[target.precision]):
            return f"this CPU has no {target.precision} instructions that OpenVINO could use"
        return None

    def prepare(self, captured: CapturedGraph | PortableGraph, target: Target, directory: Path) -> list[str]:
        files = write_onnx(captured, directory)
        return write_calibrated(captured.calibration, directory) if target.precision.startswith("int8") else files

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
            model = _core().read_model(str(path))
            if target.batch is not None:
                model.reshape({item: [target.batch, *list(item.partial_shape)[1:]] for item in model.inputs})
            compiled = _core().compile_model(model, "CPU", settings)
            session = _OpenVinoSession(compiled.create_infer_request(), len(compiled.outputs))
            return session if target.batch is None else FixedBatchSession(session, target.batch)
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
