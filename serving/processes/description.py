"""The engine's models as JSON, from which a front end makes models of its own that leave the running to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from ...runtime.artifact.model_config import ModelConfig
from ...specs import Preprocessing, Signature
from ..batching.batcher import Batcher
from ..batching.latency_table import LatencyTable
from ..batching.request_queue import RequestQueue
from ..config import ServeConfig
from ..models.loading import preprocessor_of
from ..models.models import ClassifyModel, DecodeModel, Model, TensorModel
from ..models.response_cache import ResponseCache
from .remote_model import RemoteStatistics

__all__ = ["describe", "model_of"]

_CONFIG = TypeAdapter(ModelConfig)
MakeQueue = Callable[[str, Signature, LatencyTable], RequestQueue]


def describe(model: Model, number_of: Callable[[Model], int]) -> dict[str, Any]:
    """All that a front end needs of a model in order to answer for it, as JSON values."""
    said: dict[str, Any] = {
        "number": number_of(model),
        "name": model.name,
        "version": model.version,
        "config": _CONFIG.dump_python(model.config, mode="json"),
        "labels": list(model.labels),
    }
    if isinstance(model, TensorModel):
        assert isinstance(model.batcher, Batcher), "only the engine's own models are described"
        said |= {
            "kind": "tensor",
            "signature": model.signature.to_json(),
            "preprocessing": model.preprocessing.to_json() if model.preprocessing else None,
            "probabilities": model.probabilities,
            "instances": model.instances,
            "cached": model.cache is not None,
            "seconds": {str(bucket): seconds for bucket, seconds in _profile(model.batcher.table).items()},
        }
    elif isinstance(model, DecodeModel):
        said |= {"kind": "decode", "target": number_of(model.target)}
    elif isinstance(model, ClassifyModel):
        said |= {"kind": "classify", "target": number_of(model.target), "outputs": model.outputs}
    return said


def model_of(
    said: Mapping[str, Any],
    others: Mapping[int, Model],
    *,
    config: ServeConfig,
    statistics: RemoteStatistics,
    queue: MakeQueue,
    cache: ResponseCache | None,
) -> Model:
    """The model that `describe` described. `queue` makes what stands for its batcher; `others` holds its target by number."""
    common: dict[str, Any] = {
        "name": said["name"],
        "version": said["version"],
        "config": _CONFIG.validate_python(said["config"]),
        "labels": tuple(said["labels"]),
        "statistics": statistics,
    }
    if said["kind"] != "tensor":
        target = others[said["target"]]
        assert isinstance(target, TensorModel), "companions are those of tensor models"
        if said["kind"] == "decode":
            return DecodeModel(target=target, **common)
        return ClassifyModel(target=target, outputs=said["outputs"], **common)
    signature = Signature.from_json(said["signature"])
    preprocessing = Preprocessing.from_json(said["preprocessing"]) if said["preprocessing"] else None
    table = LatencyTable({int(bucket): seconds for bucket, seconds in said["seconds"].items()})
    return TensorModel(
        batcher=queue(said["name"], signature, table),
        signature=signature,
        preprocessing=preprocessing,
        preprocessor=preprocessor_of(preprocessing, signature, config) if preprocessing else None,
        probabilities=said["probabilities"],
        decoding=statistics.decoded(),
        instances=said["instances"],
        cache=cache.of_model() if cache is not None and said["cached"] else None,
        input_names=tuple(spec.name for spec in signature.inputs),
        output_names=tuple(spec.name for spec in signature.outputs),
        **common,
    )


def _profile(table: LatencyTable) -> dict[int, float]:
    """Seconds per bucket as profiled, without what the table has learned from the load since."""
    return {bucket: table.seconds(bucket) / table.factor for bucket in table.buckets}
