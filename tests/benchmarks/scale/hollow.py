"""A server that does all that a request needs apart from decoding and the model: what is left is what handling one costs.

    python -m tests.benchmarks.scale.hollow MODELS READY.json

Its models' images stay undecoded and their sessions answer zeros at once; HTTP, the data plane, the pool, the batcher and what
is between them are those of `headrace serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import BenchError
from headrace.runtime.images.preprocessing import Preprocessor
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.batching.staging import Staging
from headrace.serving.config import ServeConfig
from headrace.serving.http.app import create_app
from headrace.serving.http.edge import Edge
from headrace.serving.images.decode_pool import DecodePool
from headrace.serving.models.models import Model, TensorModel
from headrace.serving.models.repository import ModelRepository
from headrace.serving.plane.data_plane import DataPlane

from ..serving.echo import answer

# What the policy is told about sessions that do nothing.
_NO_TIME = 1e-5


class _Undecoded(Preprocessor):
    """Leaves a row as it is."""

    def __call__(self, data: bytes, out: np.ndarray | None = None) -> np.ndarray:
        assert out is not None, "decode_rows gives the row"
        return out


class _Zeros:
    """A session without a model."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], bucket: int) -> None:
        self._outputs: list[np.ndarray] = [np.zeros((bucket, *shape), np.float32) for shape in shapes]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._outputs

    def close(self) -> None:
        """There is nothing to free."""


class HollowPlane(DataPlane):
    """A data plane whose models are emptied when they are first asked."""

    _emptied: TensorModel | None = None

    async def _classify(self, model: Model, image: bytes, count: int, timeout: float | None) -> dict[str, Any]:
        if self._emptied is None:
            self._emptied = emptied(model)
        return await super()._classify(self._emptied, image, count, timeout)


def emptied(model: Model) -> TensorModel:
    """The same model without decoding and without computing. Raises BenchError for one that takes no images."""
    if not isinstance(model, TensorModel) or model.preprocessing is None or not isinstance(model.batcher, Batcher):
        raise BenchError(f"'{model.name}' is no model that takes images; name one that does")
    shapes = [spec.row_shape for spec in model.signature.outputs]
    buckets = model.batcher.table.buckets
    spec = model.signature.inputs[0]
    return replace(
        model,
        cache=None,
        preprocessor=_Undecoded(model.preprocessing.to_json()["steps"], pixels=model.signature.takes_pixels),
        batcher=Batcher(
            [{bucket: _Zeros(shapes, bucket) for bucket in buckets}],
            LatencyTable(dict.fromkeys(buckets, _NO_TIME)),
            name=model.name,
            staging=Staging([(spec.row_shape, np.dtype(spec.dtype))], buckets[-1]),
        ),
    )


def main(arguments: Sequence[str]) -> int:
    models, ready = arguments
    config = ServeConfig.of(models=Path(models), instances=1)  # which do not run
    repository = ModelRepository(config)
    repository.load(lambda line: print(line, flush=True))
    plane = HollowPlane(repository, DecodePool(config.images.decoders, limit=config.max_queue), config)
    answer(Edge(create_app(plane)), config, Path(ready))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
