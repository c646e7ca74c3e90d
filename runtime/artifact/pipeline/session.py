"""The session of a pipeline: rows into its first stage, and what the last one gives for them."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import BackendError
from ...base.session import Target
from .mesh import PipelineMesh
from .stages import Stages


class PipelineSession:
    """Starts the stages, which share the target's threads. Any number of threads may call it at a time; it is quickest when
    `in_flight` do, so that no stage waits.

    A call raises RankLostError, naming the stage, while one is away; it comes back by itself. Raises BackendError.
    """

    def __init__(self, folder: Path, mesh: PipelineMesh, target: Target, *, backend: str) -> None:
        if target.device != "cpu" or target.batch is not None:
            raise BackendError("a pipeline runs on CPUs, and takes any batch as it comes")
        if not hasattr(os, "memfd_create"):
            raise BackendError("a pipeline runs on Linux, whose shared memory without a name its stages use")
        self.ranks = Stages(folder, mesh, backend=backend, threads=max(1, target.thread_count // len(mesh.stages)))
        # One in each stage, and one on its way into or out of the pipe.
        self.in_flight = len(mesh.stages) + 1
        self._open = _Open(self.ranks)
        self._closed = False

    def twin(self) -> PipelineSession:
        """Another session over the same stages, which end when all of these are closed."""
        if not self._closed:
            self._open.add(1)
        return copy.copy(self)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All outputs in the signature's order, for inputs of any common number of rows."""
        if self._closed:
            raise BackendError("this session is closed; open another")
        return self.ranks.compute(inputs)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._open.add(-1)


class _Open:
    """How many sessions use the stages."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._lock = threading.Lock()
        self._count = 1

    def add(self, more: int) -> None:
        with self._lock:
            self._count += more
            left = self._count
        if not left:
            self._stages.close()
