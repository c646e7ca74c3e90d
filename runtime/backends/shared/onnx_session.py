"""A session over ONNX Runtime, whichever of its execution providers computes. Torch-free, but for tensors on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import BackendError
from ...base.session import FixedBatchSession, Session, Target
from .. import loading

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .cuda_staging import Line, Staging

_FATAL = 4
_BATCH = "batch"  # what the portable graph calls its first dimension
_TYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(bool)": "bool",
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(int16)": "int16", "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}  # fmt: skip


def open_onnx(path: Path, target: Target, providers: Sequence[str | tuple[str, dict[str, Any]]]) -> Session:
    """A session on an ONNX file with these providers, the first that can taking each operator. Raises BackendError."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = target.thread_count
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _FATAL
    # Idle threads that spin would take the cores from decoding, from other sessions, and from whatever is measured next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if target.batch is not None:
        options.add_free_dimension_override_by_name(_BATCH, target.batch)
    with loading(path, f"onnxruntime {onnxruntime.__version__}"):
        session = onnxruntime.InferenceSession(str(path), options, providers=list(providers))
    place = "cpu" if target.device == "cpu" else f"{target.device}:{gpu(target)}"
    opened = OnnxSession(session, place, _line(target))
    return opened if target.batch is None else FixedBatchSession(opened, target.batch)


def gpu(target: Target) -> int:
    """The number of the GPU that a target means, for a provider's "device_id"; the first where torch has no current one."""
    torch: Any = sys.modules.get("torch")
    if target.ordinal is None and torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return target.ordinal or 0


def _line(target: Target) -> Line | None:
    """What takes arrays to the GPU and back; None where torch, which does it, is not there or has no GPU."""
    if target.device != "cuda" or not importlib.util.find_spec("torch"):
        return None
    import torch

    from .cuda_staging import CudaLine

    return CudaLine(gpu(target)) if torch.cuda.is_available() else None


def _staging(line: Line) -> Staging:
    from .cuda_staging import Staging  # needs torch

    return Staging(line)


class OnnxSession:
    """Runs arrays, or tensors where they lie: bound to the session, those on a GPU never cross to the host.

    Arrays go by `line`, if there is one, to its device, where they are bound, and back.
    """

    def __init__(self, session: Any, place: str = "cpu", line: Line | None = None) -> None:
        self._session = session
        self._place = place
        self._names = [item.name for item in session.get_inputs()]
        self._outputs = [(item.name, _TYPES.get(item.type, ""), tuple(item.shape[1:])) for item in session.get_outputs()]
        known = all(isinstance(size, int) for _, _, row in self._outputs for size in row)  # else there is nothing to bind
        self._staging = None if line is None or not known else _staging(line)

    @property
    def tensors(self) -> list[list[tuple[str, str, Sequence[Any]]]]:
        """Names, types and shapes of the inputs, and of the outputs, as the library has them."""
        session = self._opened()
        return [[(item.name, item.type, item.shape) for item in side] for side in (session.get_inputs(), session.get_outputs())]

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        session = self._opened()
        try:
            if self._staging is not None:
                return self._staging.run(self.run_tensors, inputs)
            return list(session.run(None, dict(zip(self._names, inputs, strict=True))))
        except BackendError:
            raise
        except Exception as error:
            raise _failed(inputs, error) from error

    def run_tensors(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same for tensors, which stay on the session's device. Outputs have the rows of the inputs."""
        import numpy as np
        import torch

        session = self._opened()
        device = torch.device("cpu", 0) if self._place == "cpu" else torch.device(self._place)
        given = [value.to(device).contiguous() for value in inputs]
        results = [
            torch.empty((len(given[0]), *shape), dtype=getattr(torch, kind), device=device) for _, kind, shape in self._outputs
        ]

        def place(value: torch.Tensor) -> tuple[Any, ...]:
            kind = np.dtype(str(value.dtype).removeprefix("torch.")).type
            return device.type, device.index, kind, tuple(value.shape), value.data_ptr()

        try:
            binding = session.io_binding()
            for name, value in zip(self._names, given, strict=True):
                binding.bind_input(name, *place(value))
            for (name, _, _), value in zip(self._outputs, results, strict=True):
                binding.bind_output(name, *place(value))
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()  # the session has a stream of its own
            session.run_with_iobinding(binding)
        except Exception as error:
            raise _failed(inputs, error) from error
        return results

    def shrink(self, inputs: Sequence[np.ndarray[Any, Any]]) -> None:
        """Compute these once more, and give up the memory that larger batches have left to the session. On a CPU."""
        import onnxruntime

        if self._place == "cpu":
            options = onnxruntime.RunOptions()
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
            self._opened().run(None, dict(zip(self._names, inputs, strict=True)), options)

    def __getattr__(self, name: str) -> Any:
        """`twin`, on a CPU: a session of the library computes for several threads at once, each with memory of its own."""
        if name != "twin" or self._place != "cpu":
            raise AttributeError(name)
        session = self._opened()
        return lambda: OnnxSession(session)

    def close(self) -> None:
        self._session = None
        if self._staging is not None:
            self._staging.close()

    def _opened(self) -> Any:
        if self._session is None:
            raise BackendError("this session is closed; open another")
        return self._session


def _failed(inputs: Sequence[Any], error: Exception) -> BackendError:
    return BackendError(f"onnxruntime failed on inputs of shape {[tuple(value.shape) for value in inputs]}: {error}")
