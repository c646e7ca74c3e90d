"""The session of a split model: the trunk computes here, the last layer in the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....errors import BackendError
from ... import backends
from ...base.session import Session, Target
from .best import Best, merged
from .mesh import Mesh
from .ranks import Ranks


class SplitSession:
    """Opens the trunk and starts the ranks. The ranks share the target's threads; the trunk, before them, has all.

    A call raises RankLostError, naming the rank, while one is away; it comes back by itself. Raises BackendError.
    """

    def __init__(self, folder: Path, mesh: Mesh, target: Target, *, backend: str) -> None:
        if target.device != "cpu" or target.batch is not None:
            raise BackendError("a split model runs on CPUs, and takes any batch as it comes")
        self._bounds = mesh.bounds
        self._trunk: Session = backends.get(backend).open(folder, target, [mesh.trunk])
        try:
            self.ranks = Ranks(folder, mesh, backend=backend, threads=max(1, target.thread_count // len(mesh.parts)))
        except BaseException:
            self._trunk.close()
            raise
        if len(set(self.ranks.widths)) != 1:
            self.close()
            raise BackendError(f"the parts take {self.ranks.widths} features; split the model again")

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All scores, float32 [rows, classes]."""
        features = self._features(inputs)
        parts = self.ranks.compute(features, 0)
        scores: np.ndarray = np.empty((len(features), self._bounds[-1][1]), np.float32)
        for (first, end), part in zip(self._bounds, parts, strict=True):
            scores[:, first:end] = np.frombuffer(part, np.float32).reshape(len(features), end - first)
        return [scores]

    def best(self, inputs: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        """The `count` best classes of each row and their probabilities over all classes, as `best_classes` has them of `run`'s
        scores, which are not brought together for that: int64 and float64 [rows, count]."""
        features = self._features(inputs)
        rows, found = len(features), []
        for (first, end), part in zip(self._bounds, self.ranks.compute(features, count), strict=True):
            size = rows * min(count, end - first)
            classes = np.frombuffer(part, np.int64, size).reshape(rows, -1)
            scores = np.frombuffer(part, np.float64, size, classes.nbytes).reshape(rows, -1)
            found.append(Best(classes, scores, np.frombuffer(part, np.float64, rows, 2 * classes.nbytes)))
        return list(merged(found, [first for first, _ in self._bounds], count))

    def close(self) -> None:
        self.ranks.close()
        self._trunk.close()

    def _features(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        features = self._trunk.run(inputs)[0]
        wanted = (len(inputs[0]), self.ranks.widths[0])
        if features.shape != wanted or features.dtype != np.float32:
            raise BackendError(
                f"features are {features.dtype}{list(features.shape)}, not float32{list(wanted)}; split the model again"
            )
        return np.ascontiguousarray(features)
