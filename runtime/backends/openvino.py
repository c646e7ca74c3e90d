"""OpenVINO on x86 and ARM CPUs; reads the portable graph. Opens without torch.

The graph keeps its dynamic batch unless the target names one: on ResNet-50 a graph reshaped to its batch is hardly faster, on
transformers and MobileNets it gains 5 to 45 % and costs one compilation and one set of weights per size. Parts of a batch on
streams side by side, which need not wait for each other after every layer, gain another 3 to 14 %. So these are candidates
of their own, which the plan measures.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import MADV_DONTNEED, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ...specs import BF16, FP16, FP32, INT8, INT8_BF16, Precision
from ..base.openvino_library import import_openvino
from ..base.session import FixedBatchSession
from ..lowering.quantize import write_portable
from . import Backend, loading
from .shared.compiled_files import HEAD, drop, key_of, look_up, store

log = logging.getLogger("headrace.cache")

if TYPE_CHECKING:
    import numpy as np

    from ..base.session import Session, Target
    from . import AnyGraph, Records

# The hint must be given for fp32 too: on CPUs with bfloat16 instructions OpenVINO chooses bf16 by itself. For a quantized
# graph it is what the operators between the integer ones compute in.
_HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}


@dataclass(frozen=True, kw_only=True)
class OpenVinoBackend(Backend):
    """Reads model.onnx, or its quantized form; the floating-point precision is a hint at load, so those share a file."""

    name: str = "openvino"
    format: str = "onnx"
    runs_code: bool = False
    libraries: tuple[str, ...] = ("openvino",)
    fixed_batch: bool = True
    streams: bool = True
    devices: tuple[str, ...] = ("cpu",)
    precisions: tuple[Precision, ...] = (FP32, BF16, FP16, INT8, INT8_BF16)
    preparation_seconds: float = 1.0
    efficiency: float = 0.9

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("openvino") else "openvino is not installed: pip install openvino"

    def _lacks(self, target: Target) -> str | None:
        needed = {name.upper() for name in (target.precision.dtype, target.precision.rest)} - {"FP32"}
        if not _capabilities().issuperset(needed):
            return f"this CPU has no {target.precision.name} instructions that OpenVINO could use"
        return None

    def prepare(self, captured: AnyGraph, target: Target, directory: Path, records: Records = None) -> list[str]:
        return write_portable(captured, directory, self.name, target.precision, records, float_gates=True)

    def _open(self, paths: list[Path], target: Target) -> Session:
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[target.precision.rest],
            "INFERENCE_NUM_THREADS": target.thread_count,
            "NUM_STREAMS": min(target.streams, target.thread_count),
            "PERFORMANCE_HINT": "LATENCY" if target.streams == 1 else "THROUGHPUT",
            "ENABLE_CPU_PINNING": False,  # several sessions in one process would be pinned to the same cores
        }
        rows = None if target.batch is None else target.batch // target.streams
        with loading(paths[0], "openvino"):
            compiled, memory = (_kept if target.kept else _compiled)(paths, rows, settings)
            session = _OpenVinoSession(compiled, target.streams, memory)
            return session if target.batch is None else FixedBatchSession(session, target.batch)


def _compiled(paths: list[Path], rows: int | None, settings: dict[str, Any]) -> tuple[Any, mmap | None]:
    """The compiled model, and the memory that holds its weights where that is not its own."""
    model = (_unmapped() if paths[0].suffix == ".xml" else _core()).read_model(str(paths[0]))
    if rows is not None:
        model.reshape({item: [rows, *list(item.partial_shape)[1:]] for item in model.inputs})
    return _core().compile_model(model, "CPU", settings), None


def _kept(paths: list[Path], rows: int | None, settings: dict[str, Any]) -> tuple[Any, mmap | None]:
    """The same from the cache, into which it goes first if it is not there: its weights are the file's then, which is mapped.
    The library's own cache would read whatever lies in its folder."""
    import numpy as np

    openvino = import_openvino()
    key = key_of(paths, {"openvino": openvino.__version__, "rows": rows, "settings": settings})
    found, own = look_up(key), None
    if found is None:
        own, written = _compiled(paths, rows, settings)[0], io.BytesIO()
        own.export_model(written)
        found = store(key, written.getbuffer())
    if found is None:
        return own, None
    try:
        blob = openvino.Tensor(np.frombuffer(found, np.uint8, offset=HEAD), shared_memory=True)
        return _core().import_model(blob, "CPU", settings), found
    except Exception as error:  # noqa: BLE001 - whatever the library raises: the graph is there still
        log.warning("openvino cannot read what it compiled before, which is removed: %s", error)
        drop(key)
        return (own, None) if own is not None else _compiled(paths, rows, settings)


class _OpenVinoSession:
    """With one request, any batch; with several, batches of equal parts, which run side by side.

    `memory` is where the weights lie from which the library made those that it computes with.
    """

    def __init__(self, compiled: Any, streams: int, memory: mmap | None = None) -> None:
        self._memory = memory
        self._compiled = compiled
        self._requests: Sequence[Any] = [compiled.create_infer_request() for _ in range(streams)]
        self._outputs = len(compiled.outputs)

    @property
    def ports(self) -> tuple[list[Any], list[Any]]:
        """The library's inputs and outputs."""
        return self._compiled.inputs, self._compiled.outputs

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        if not self._requests:
            raise BackendError("this session is closed; open another")
        import numpy as np

        rows = [np.ascontiguousarray(value) for value in inputs]
        try:
            # Requests read the caller's memory during the call, and their results are copied out before the next one.
            if len(self._requests) == 1:
                results = self._requests[0].infer(rows, share_inputs=True, share_outputs=False)
                return [results[index] for index in range(self._outputs)]
            return self._side_by_side(rows)
        except Exception as error:
            raise BackendError(f"openvino failed on inputs of shape {[value.shape for value in inputs]}: {error}") from error

    def _side_by_side(self, rows: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        import numpy as np

        step = len(rows[0]) // len(self._requests)
        started = []
        try:
            for index, request in enumerate(self._requests):
                request.start_async([value[index * step : (index + 1) * step] for value in rows], share_inputs=True)
                started.append(request)
        finally:  # nothing may go on reading the rows when this returns
            for request in started:
                request.wait()
        found = [[request.get_output_tensor(index).data for request in self._requests] for index in range(self._outputs)]
        return [np.concatenate(parts) for parts in found]

    def twin(self) -> Session:
        """Other requests to the same compiled model: they wait for each other there, and not while rows come and go."""
        if not self._requests:
            raise BackendError("this session is closed; open another")
        return _OpenVinoSession(self._compiled, len(self._requests), self._memory)

    def shrink(self, inputs: Sequence[np.ndarray[Any, Any]]) -> None:
        """Give up the memory of all that was computed, and compute these again."""
        if self._compiled is not None:
            self._compiled.release_memory()
            self.run(inputs)
        if self._memory is not None and hasattr(self._memory, "madvise"):
            self._memory.madvise(MADV_DONTNEED)  # of the file's pages those come back that are needed

    def close(self) -> None:
        self._requests, self._compiled = (), None  # before the memory that they lie in
        self._memory = None


@functools.cache
def _core() -> Any:
    return import_openvino().Core()


@functools.cache
def _unmapped() -> Any:
    """For weights in a file of their own, which others may cut short: a mapped one would end the process then (SIGBUS)."""
    core = import_openvino().Core()
    core.set_property({"ENABLE_MMAP": False})
    return core


@functools.cache
def _capabilities() -> frozenset[str]:
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))


BACKEND = OpenVinoBackend()
