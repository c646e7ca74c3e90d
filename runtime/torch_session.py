"""A session over anything that maps tensors to tensors; what the eager and inductor backends open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import BackendError
from .capture import MAX_BATCH
from .session import Target

_LOW = (torch.bfloat16, torch.float16)


class TorchSession:
    """Runs `function(*tensors)` without gradients on the target's device, with its threads.

    Outputs in a reduced precision come back as float32. More than `MAX_BATCH` rows are run in parts.
    """

    def __init__(self, function: Callable[..., Sequence[torch.Tensor]], target: Target) -> None:
        self._function: Callable[..., Sequence[torch.Tensor]] | None = function
        self._target = target

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """See `Session.run`."""
        tensors = [
            torch.from_numpy(value if value.flags.writeable else value.copy()) for value in map(np.ascontiguousarray, inputs)
        ]
        results = [value.numpy(force=True) for value in self.run_tensors(tensors)]
        # A model may hand back a view of its input; the caller's output must be the caller's own.
        return [value.copy() if any(np.may_share_memory(value, given) for given in inputs) else value for value in results]

    def run_tensors(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same for tensors, which stay on the target's device."""
        if self._function is None:
            raise BackendError("this session is closed; open another")
        device = torch.device(self._target.device)
        parts = []
        with torch.no_grad(), thread_count(self._target.thread_count, device), _without_autocast(device):
            for start in range(0, inputs[0].shape[0], MAX_BATCH):
                part = [value[start : start + MAX_BATCH].to(device) for value in inputs]
                try:
                    results = self._function(*part)
                except Exception as error:
                    message = f"the model failed on inputs of shape {[tuple(value.shape) for value in part]}: {error}"
                    raise BackendError(message) from error
                parts.append([value.float() if value.dtype in _LOW else value for value in results])
        return parts[0] if len(parts) == 1 else [torch.cat(values) for values in zip(*parts, strict=True)]

    @property
    def note(self) -> str:
        """What the session could not do as meant, such as why CUDA graphs are off; empty when all is well."""
        return getattr(self._function, "refused", "")

    def close(self) -> None:
        """See `Session.close`."""
        self._function = None


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
