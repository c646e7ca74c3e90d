"""CUDA graphs: a function of tensors is recorded per batch bucket and replayed, without the cost of launching its kernels.

Batches are padded to the next bucket, four to each power of two, so at most a quarter of a batch is padding.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...base.numerics import padded_rows

_LOG = logging.getLogger(__name__)

MOST_ROWS = 1024
"""Larger batches keep a GPU busy by themselves; they are run as they come. Of 512 images a GPU computes a ResNet-50 in int8
faster than its kernels are launched (9 and 13 ms on an H200)."""

_MOST_KEPT = 24  # recordings; each holds its inputs, outputs and a share of one memory pool
_WARM_UPS = 2

Function = Callable[..., Sequence[torch.Tensor]]
Recording = Callable[[], None]
Record = Callable[[Function, Sequence[torch.Tensor]], tuple[Recording, Sequence[torch.Tensor]]]


def bucket(rows: int) -> int:
    """The smallest batch that is recorded and holds so many rows: 1 to 8, then 10, 12, 14, 16, 20, 24, 28, 32, 40..."""
    if rows < 1:
        raise ValueError(f"a batch has at least one row, got {rows}")
    step = max(1, 1 << max(0, (rows - 1).bit_length() - 3))
    return -(-rows // step) * step


class Replayed:
    """Calls like `function`, by replaying what was recorded of it. Results are the caller's own. One call at a time.

    `record` writes the function's outputs for the inputs' memory each time what it returns is called. The oldest unused
    recording goes when there are too many. When a recording fails, the function itself is called from then on, and
    `refused` says why.
    """

    def __init__(self, function: Function, record: Record, *, most_kept: int = _MOST_KEPT) -> None:
        self.refused = ""
        self._function = function
        self._record = record
        self._most_kept = most_kept
        self._kept: OrderedDict[Any, tuple[Recording, list[torch.Tensor], list[torch.Tensor]]] = OrderedDict()

    @property
    def recorded(self) -> tuple[int, ...]:
        """The batch sizes that are recorded now, the one longest unused first."""
        return tuple(key[0][0][0] for key in self._kept)

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        """The outputs for inputs [batch, ...] on the function's device, in fresh memory."""
        rows = inputs[0].shape[0]
        if self.refused or rows > MOST_ROWS:
            return self._function(*inputs)
        key = tuple(((bucket(rows), *value.shape[1:]), value.dtype) for value in inputs)
        if key not in self._kept and not self._recorded(key, inputs):
            return self._function(*inputs)
        self._kept.move_to_end(key)
        replay, given, results = self._kept[key]
        for memory, value in zip(given, inputs, strict=True):
            memory[:rows].copy_(value)  # rows beyond are left over from an earlier batch: valid data, and never returned
        replay()
        return [value[:rows].clone() for value in results]

    def close(self) -> None:
        """Free every recording; the object can still be called."""
        self._kept.clear()

    def _recorded(self, key: Any, inputs: Sequence[torch.Tensor]) -> bool:
        given = [padded_rows(value, shape[0]) for value, (shape, _) in zip(inputs, key, strict=True)]
        try:
            replay, results = self._record(self._function, given)
            if any(value.ndim == 0 or value.shape[0] != given[0].shape[0] for value in results):
                raise ValueError("an output has no row for each row of the inputs")
        except (RuntimeError, ValueError) as error:
            self.refused = f"CUDA graphs are off for this model: {' '.join(str(error).split()) or type(error).__name__}"
            self._kept.clear()
            _LOG.warning(self.refused)
            return False
        self._kept[key] = replay, given, list(results)
        while len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)
        return True


# While one thread records, no other may: recording begins with waiting for the device, which spoils what is being recorded.
_RECORDING = threading.Lock()


@functools.cache
def _stream_to_record(ordinal: int) -> torch.cuda.Stream:
    """One stream per device, of a priority that no session has: torch gives out 32 of each priority again and again, and what
    another session began on a stream that is being recorded would become part of the recording."""
    return torch.cuda.Stream(ordinal, priority=-1)


class CudaRecorder:
    """Records on a stream that nothing else runs on, into one memory pool: recordings of one session, which are never replayed
    at once, share it.

    On the device given; None is torch's current one. Sessions of other threads may run meanwhile, also on the same device.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        index = None if device is None else device.index
        self._stream = _stream_to_record(torch.cuda.current_device() if index is None else index)

    def __call__(self, function: Function, inputs: Sequence[torch.Tensor]) -> tuple[Recording, Sequence[torch.Tensor]]:
        """Record the function on the inputs' memory. Raises RuntimeError when something in it cannot be recorded."""
        with _RECORDING, torch.cuda.device(self._stream.device):
            return self._recorded(function, inputs)

    def _recorded(self, function: Function, inputs: Sequence[torch.Tensor]) -> tuple[Recording, Sequence[torch.Tensor]]:
        # Allocations, library handles and folded constants of a first call must not be part of the recording.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UPS):
                function(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # "thread_local": what other threads of a server do on the GPU meanwhile must not spoil the recording.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            results = function(*inputs)
        return graph.replay, results
