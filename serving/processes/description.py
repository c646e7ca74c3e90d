"""The engine's models described, and the models that a front end makes of that and that leave the running to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...specs import Signature
from ..batching.batcher import Batcher
from ..batching.latency_table import LatencyTable
from ..batching.request_queue import RequestQueue
from ..config import ServeConfig
from ..models.loading import preprocessor_of
from ..models.models import ClassifyModel, DecodeModel, Model, TensorModel
from ..models.response_cache import ResponseCache
from .messages import ClassifyDescription, DecodeDescription, Description, TensorDescription
from .remote_model import RemoteStatistics

MakeQueue = Callable[[str, Signature, LatencyTable], RequestQueue]


def describe(model: Model, number_of: Callable[[Model], int]) -> Description:
    """All that a front end needs of a model in order to answer for it."""
    common: dict[str, Any] = {
        "number": number_of(model),
        "name": model.name,
        "version": model.version,
        "config": model.config,
    }
    if isinstance(model, DecodeModel):
        return DecodeDescription(target=number_of(model.target), **common)
    if isinstance(model, ClassifyModel):
        return ClassifyDescription(target=number_of(model.target), outputs=model.outputs, **common)
    assert isinstance(model, TensorModel), "there are no others"
    assert isinstance(model.batcher, Batcher), "only the engine's own models are described"
    return TensorDescription(
        signature=model.signature,
        preprocessing=model.preprocessing,
        task=model.task,
        instances=model.instances,
        cached=model.cache is not None,
        account=dict(model.account),
        seconds=_profile(model.batcher.table),
        **common,
    )


def model_of(
    described: Description,
    others: Mapping[int, Model],
    *,
    config: ServeConfig,
    statistics: RemoteStatistics,
    queue: MakeQueue,
    cache: ResponseCache | None,
) -> Model:
    """The model that `describe` described. `queue` makes what stands for its batcher; `others` holds its target by number."""
    common: dict[str, Any] = {
        "name": described.name,
        "version": described.version,
        "config": described.config,
        "statistics": statistics,
    }
    if not isinstance(described, TensorDescription):
        target = others[described.target]
        assert isinstance(target, TensorModel), "companions are those of tensor models"
        if isinstance(described, DecodeDescription):
            return DecodeModel(target=target, **common)
        return ClassifyModel(target=target, outputs=dict(described.outputs), **common)
    signature, preprocessing = described.signature, described.preprocessing
    return TensorModel(
        batcher=queue(described.name, signature, LatencyTable(described.seconds)),
        signature=signature,
        preprocessing=preprocessing,
        preprocessor=preprocessor_of(preprocessing, signature, config) if preprocessing else None,
        task=described.task,
        decoding=statistics.decoded(),
        instances=described.instances,
        account=described.account,
        cache=cache.of_model() if cache is not None and described.cached else None,
        **common,
    )


def _profile(table: LatencyTable) -> dict[int, float]:
    """Seconds per bucket as profiled, without what the table has learned from the load since."""
    return {bucket: table.seconds(bucket) / table.factor for bucket in table.buckets}
