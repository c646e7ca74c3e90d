"""What a compiled model is to whoever runs it: numpy rows in, numpy rows out. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

_DEVICES = ("cpu", "cuda")
_PRECISIONS = ("fp32", "bf16", "fp16", "int8")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where and how precisely a session computes. `threads` counts CPU threads; None is `default_threads()`."""

    device: str = "cpu"
    precision: str = "fp32"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.device not in _DEVICES:
            raise ValueError(f"target: device must be one of {', '.join(_DEVICES)}; got {self.device!r}")
        if self.precision not in _PRECISIONS:
            raise ValueError(f"target: precision must be one of {', '.join(_PRECISIONS)}; got {self.precision!r}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"target: threads must be at least 1, got {self.threads}")

    @property
    def thread_count(self) -> int:
        """The CPU threads to use, with the default filled in."""
        return self.threads if self.threads is not None else default_threads()


class Session(Protocol):
    """One loaded, compiled model. Used by one thread at a time; open one session per thread.

    A torch session also has `run_tensors(list[Tensor]) -> list[Tensor]`, which keeps GPU data on the GPU.
    """

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Compute all outputs in the signature's order, for inputs of any common batch size >= 1. Outputs are the caller's own.

        Raises BackendError when the library under it fails.
        """
        ...

    def close(self) -> None:
        """Free memory and threads; the session cannot be used afterwards. Safe to call twice."""
        ...


def default_threads() -> int:
    """Physical cores that this process may use: at most its CPU affinity and its container's quota, at least 1."""
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or allowed
    return max(1, min(allowed, physical, _quota(Path("/sys/fs/cgroup/cpu.max")) or allowed))


def _quota(path: Path) -> int | None:
    """CPUs granted by a cgroup v2 quota file ("max 100000" or "150000 100000"), rounded up; None when there is no limit."""
    try:
        granted, period = path.read_text(encoding="ascii").split()
        return None if granted == "max" else max(1, -(-int(granted) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return None
