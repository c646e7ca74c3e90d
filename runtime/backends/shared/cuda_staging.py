"""Arrays to a device and back, beside other sessions: pinned memory, copies in the background, a stream of one's own.

Of two sessions on one GPU, one copies while the other computes: each has a stream and waits for nothing but its own work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch

Arrays = Sequence[np.ndarray[Any, Any]]
Compute = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


class Line(Protocol):
    """One session's queue of work on a device: done in the order in which it was begun, and beside other lines."""

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        ...

    def memory(self, size: int) -> torch.Tensor:
        """So many bytes of the host [size] uint8 that the device reads and writes by itself."""
        ...

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Within, whatever is begun on the device joins this line."""
        ...

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begin to copy between the host's `memory` and the device; neither may be touched before `finish`."""
        ...

    def follow(self) -> None:
        """What the caller began on the device outside of this line comes before all that joins it later."""
        ...

    def finish(self) -> None:
        """Wait until all that was begun is done. Raises RuntimeError when the device failed."""
        ...


class Staging:
    """A session's memory on the host for what goes to its device and what comes back, as large as the largest batch so far.

    One call at a time: a call ends when the device is done with the memory, so that all batch sizes share it.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self._rooms: dict[tuple[str, int], torch.Tensor] = {}

    def run(self, compute: Compute, arrays: Arrays) -> list[np.ndarray[Any, Any]]:
        """The outputs of `compute`, which takes and gives tensors on the line's device, for arrays of the host.

        Results are the caller's own, and the arrays are free again. Raises what `compute` raises, and RuntimeError when the
        device failed.
        """
        line = self.line
        with line.current():
            try:
                results = compute([self._sent(number, array) for number, array in enumerate(arrays)])
                fetched = [self._fetched(number, value) for number, value in enumerate(results)]
            finally:  # after an error, too: the memory is written again by the next call
                line.finish()
        return [memory.numpy().copy() for memory in fetched]

    def close(self) -> None:
        """Free the memory; another call takes it anew."""
        self._rooms.clear()

    def _sent(self, number: int, array: np.ndarray[Any, Any]) -> torch.Tensor:
        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        memory = self._room("input", number, array.shape, kind)
        np.copyto(memory.numpy(), array)  # releases the GIL, so that another session's thread goes on
        value = torch.empty(array.shape, dtype=kind, device=self.line.device)
        self.line.copy(value, memory)
        return value

    def _fetched(self, number: int, value: torch.Tensor) -> torch.Tensor:
        memory = self._room("output", number, value.shape, value.dtype)
        self.line.copy(memory, value)
        return memory

    def _room(self, side: str, number: int, shape: Sequence[int], kind: torch.dtype) -> torch.Tensor:
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        room = self._rooms.get((side, number))
        if room is None or len(room) < size:
            room = self._rooms[side, number] = self.line.memory(size)
        return room[:size].view(kind).view(tuple(shape))


class CudaLine:
    """A CUDA stream, not the legacy default one, which waits for all others and lets them wait.

    `ordinal` counts the visible GPUs; None is torch's current one.
    """

    def __init__(self, ordinal: int | None = None) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device() if ordinal is None else ordinal)
        self._stream = torch.cuda.Stream(self.device)
        # Blocking: a thread that spins until the GPU is done would take a core from decoding.
        self._done = torch.cuda.Event(blocking=True)
        self._before = torch.cuda.Event()
        self.follow()  # weights may still be on their way

    def memory(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """See `Line.current`. It is the thread's current device, too."""
        with torch.cuda.stream(self._stream):
            yield

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def follow(self) -> None:
        if not torch.cuda.is_current_stream_capturing():  # what a caller records runs later, and may not be waited for here
            self._before.record(torch.cuda.current_stream(self.device))
            self._stream.wait_event(self._before)

    def finish(self) -> None:
        self._done.record(self._stream)
        self._done.synchronize()
