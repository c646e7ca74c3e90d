"""A session over anything that maps tensors to tensors; what the eager and inductor backends open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ....errors import BackendError
from ...base.session import Target
from ...capture.capture import MAX_BATCH
from .cuda_graphs import CudaRecorder, Replayed
from .cuda_staging import CudaLine, Line, Staging
from .cudnn_search import Searched

_LOW = (torch.bfloat16, torch.float16)


class TorchSession:
    """Runs `function(*tensors)` without gradients on the target's device, with its threads.

    Outputs in a reduced precision come back as float32. More than `MAX_BATCH` rows are run in parts. Arrays go by `line`, if
    there is one, to its device and back; tensors are computed in the caller's order.
    """

    def __init__(self, function: Callable[..., Sequence[torch.Tensor]], target: Target, line: Line | None = None) -> None:
        self._function: Callable[..., Sequence[torch.Tensor]] | None = function
        self._target = target
        self._device = torch.device(target.place) if line is None else line.device
        self._staging = None if line is None else Staging(line)

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        if self._staging is not None:
            return self._staged(self._staging, inputs)
        tensors = [
            torch.from_numpy(value if value.flags.writeable else value.copy()) for value in map(np.ascontiguousarray, inputs)
        ]
        results = [value.numpy(force=True) for value in self.run_tensors(tensors)]
        # A model may hand back a view of its input; the caller's output must be the caller's own.
        return [value.copy() if any(np.may_share_memory(value, given) for given in inputs) else value for value in results]

    def run_tensors(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same for tensors, which stay on the target's device."""
        with self._prepared():
            parts = [self._computed([value.to(self._device) for value in part]) for part in _parts(inputs)]
        if self._staging is not None:  # what the function keeps is used again by the next arrays
            self._staging.line.follow()
        return parts[0] if len(parts) == 1 else [torch.cat(values) for values in zip(*parts, strict=True)]

    def held(self, inputs: Sequence[np.ndarray[Any, Any]]) -> Callable[[], object] | None:
        """See `HoldsRows`."""
        if self._staging is None:
            return None
        try:
            tensors = [torch.from_numpy(np.ascontiguousarray(value)).to(self._device) for value in inputs]
        except RuntimeError as error:
            raise BackendError(f"the device does not hold inputs of shape {_shapes(inputs)}: {error}") from error

        def compute() -> None:
            self.run_tensors(tensors)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return compute

    @property
    def note(self) -> str:
        """What the session could not do as meant, such as why CUDA graphs are off; empty when all is well."""
        return getattr(self._function, "refused", "")

    def close(self) -> None:
        self._function = None
        if self._staging is not None:
            self._staging.close()

    def _staged(self, staging: Staging, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        try:
            with self._prepared():
                parts = [staging.run(self._computed, part) for part in _parts(inputs)]
        except RuntimeError as error:
            raise BackendError(f"the device failed on inputs of shape {_shapes(inputs)}: {error}") from error
        return parts[0] if len(parts) == 1 else [np.concatenate(values) for values in zip(*parts, strict=True)]

    def _computed(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs for at most `MAX_BATCH` rows on the device."""
        if self._function is None:
            raise BackendError("this session is closed; open another")
        try:
            results = self._function(*inputs)
        except Exception as error:
            raise BackendError(f"the model failed on inputs of shape {_shapes(inputs)}: {error}") from error
        return [value.float() if value.dtype in _LOW else value for value in results]

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[None]:
        on_it = torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext()
        threads = thread_count(self._target.thread_count, self._device)
        with torch.no_grad(), on_it, threads, _without_autocast(self._device):
            yield


def open_session(function: Callable[..., Sequence[torch.Tensor]], target: Target, *, recorded: bool) -> TorchSession:
    """A session on the target's device: on a GPU with a stream of its own and cuDNN's search, `recorded` there and replayed as
    CUDA graphs."""
    if target.device != "cuda":
        return TorchSession(function, target)
    line, function = CudaLine(target.ordinal), Searched(function)
    return TorchSession(Replayed(function, CudaRecorder(line.device)) if recorded else function, target, line)


def _parts(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(inputs[0]), MAX_BATCH):
        yield [value[start : start + MAX_BATCH] for value in inputs]


def _shapes(inputs: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in inputs]


@contextlib.contextmanager
def thread_count(count: int, device: torch.device) -> Iterator[None]:
    """torch's intra-operation threads within the block; the number belongs to the process, so it is put back."""
    before = torch.get_num_threads()
    if device.type != "cpu" or before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _without_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """An autocast around the call is not ours: the plan chose the precision."""
    inside = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if inside else contextlib.nullcontext()
