"""A server that does all that a request needs apart from decoding and the model: what is left is what handling one costs.

    python -m headrace.serving.scale.hollow MODELS READY.json

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

from ...errors import BenchError
from ...runtime.preprocessing import Preprocessor
from ..batcher import Batcher
from ..bench.echo import answer
from ..config import ServeConfig
from ..dataplane import DataPlane
from ..decode import DecodePool
from ..http import create_app
from ..http_edge import Edge
from ..latency import LatencyTable
from ..models import Model, TensorModel
from ..repository import ModelRepository
from ..staging import Staging

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
    config = ServeConfig(models=Path(models), instances=1)  # which do not run
    repository = ModelRepository(config)
    repository.load(lambda line: print(line, flush=True))  # noqa: T201 - the server's log
    plane = HollowPlane(repository, DecodePool(config.decoders, limit=config.max_queue), config)
    answer(Edge(create_app(plane)), config, Path(ready))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
