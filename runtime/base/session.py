"""What a compiled model is to whoever runs it: numpy rows in, numpy rows out. Torch-free."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ...errors import BackendError
from ...specs import FP32, Precision
from .fingerprint import available_cores

if TYPE_CHECKING:
    import numpy as np

_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where and how precisely a session computes. `threads` counts CPU threads; None is `default_threads()`.

    `batch` asks for a session compiled for that many rows alone: fewer are padded, more are run in parts. None
    takes any batch as it comes. With `streams` such a batch is cut into that many equal parts, which are computed side by side,
    each by its share of the threads. `ordinal` says which of the visible GPUs; None is the process's current one. `kept` lets
    a library take what it compiled at an earlier start from the cache, and leave it there.
    """

    device: str = "cpu"
    precision: Precision = FP32
    threads: int | None = None
    batch: int | None = None
    streams: int = 1
    ordinal: int | None = None
    kept: bool = False

    def __post_init__(self) -> None:
        if self.device not in _DEVICES:
            raise ValueError(f"target: device must be one of {', '.join(_DEVICES)}; got {self.device!r}")
        if not isinstance(self.precision, Precision):
            raise ValueError(f"target: precision must be a headrace.specs.Precision, got {self.precision!r}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"target: threads must be at least 1, got {self.threads}")
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"target: batch must be at least 1, got {self.batch}")
        if self.streams < 1 or (self.streams > 1 and (self.batch is None or self.batch % self.streams)):
            raise ValueError(f"target: streams must divide batch, got {self.streams} for {self.batch}")
        if self.ordinal is not None and (self.ordinal < 0 or self.device == "cpu"):
            raise ValueError(f"target: ordinal must count GPUs from 0, got {self.ordinal} for {self.device}")

    @property
    def place(self) -> str:
        """The device as torch names it: "cpu", "cuda" or "cuda:1"."""
        return self.device if self.ordinal is None else f"{self.device}:{self.ordinal}"

    @property
    def thread_count(self) -> int:
        """The CPU threads to use, with the default filled in."""
        return self.threads if self.threads is not None else default_threads()


class Session(Protocol):
    """One loaded, compiled model. Used by one thread at a time; open one session per thread.

    A torch session also has `run_tensors(list[Tensor]) -> list[Tensor]`, which keeps GPU data on the GPU. Where the library
    can, `twin()` gives another session over the same weights, which may run beside this one and has to be closed by itself,
    and `shrink(inputs)` gives back the memory that larger batches than these took. That of a split model has
    `best(inputs, count)`, the best classes without the scores, where it is split by class, `ranks`, its processes, and
    `in_flight`, how many twins are to be used at a time for it to be at its quickest, where these are stages.
    """

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Compute all outputs in the signature's order, for inputs of any common batch size >= 1. Outputs are the caller's own.

        Raises BackendError when the library under it fails.
        """
        ...

    def close(self) -> None:
        """Free memory and threads; the session cannot be used afterwards. Safe to call twice."""
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """A session to which rows can be given ahead."""

    def held(self, inputs: Sequence[np.ndarray[Any, Any]]) -> Callable[[], object] | None:
        """Copy the rows to the session's device; the function computes them there and waits for that. None on a CPU.

        Both raise BackendError when the device fails.
        """
        ...


class FixedBatchSession:
    """A session that computes `batch` rows at a time, for any number of them: fewer are padded, more are run in parts."""

    def __init__(self, inner: Session, batch: int) -> None:
        self._inner = inner
        self._batch = batch

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        rows, batch = len(inputs[0]), self._batch
        if rows == batch:
            return self._inner.run(inputs)
        import numpy as np

        results = []
        for start in range(0, rows, batch):
            part = [value[start : start + batch] for value in inputs]
            lacking = batch - len(part[0])
            if lacking:  # with copies of a row: zeros could be slower or faster than what a model is used to
                part = [np.concatenate([value, np.repeat(value[-1:], lacking, axis=0)]) for value in part]
            results.append([value[: batch - lacking] for value in self._inner.run(part)])
        return results[0] if len(results) == 1 else [np.concatenate(values) for values in zip(*results, strict=True)]

    def __getattr__(self, name: str) -> Any:
        """`twin`, where what is inside has it."""
        if name != "twin":
            raise AttributeError(name)
        twin: Callable[[], Session] = self._inner.twin  # type: ignore[attr-defined]
        return lambda: FixedBatchSession(twin(), self._batch)

    def close(self) -> None:
        self._inner.close()


def default_threads() -> int:
    """Physical cores that this process may use: at most its CPU affinity and its container's quota, at least 1."""
    import psutil

    return max(1, min(available_cores(), psutil.cpu_count(logical=False) or available_cores()))


def visible_gpus() -> int:
    """How many GPUs CUDA lets this process use, by its CUDA_VISIBLE_DEVICES; 0 without NVIDIA's driver. Torch-free."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    # Anything but 0 is an error, such as a driver without a device (100); no context is made, which would take memory.
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def check_device(device: str) -> None:
    """Raises BackendError, naming the remedy, where "cuda" is asked for and this process sees no GPU."""
    if device == "cuda" and visible_gpus() == 0:
        raise BackendError(
            "there is no NVIDIA GPU for --device cuda: nvidia-smi must list one, and CUDA_VISIBLE_DEVICES must not hide it; "
            "--device cpu plans for this machine's processor"
        )
