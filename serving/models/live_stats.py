"""What a server and its models do right now, as the console draws it: counters, the latency histogram, the queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..batching.batcher import Batcher
from ..batching.statistics import LATENCY_BOUNDS
from ..config import ServeConfig
from ..protocol.results import image_routes
from .foreign.ensemble import EnsembleModel
from .models import ClassifyModel, DecodeModel, Model, QueuedModel, TensorModel
from .repository_protocol import RepositoryProtocol

_SHOWN = ("device", "threads", "precisions", "serves", "measured", "reason", "parity")
"""What of a model's account is told at every look; the rest is asked for once."""


def model_live_stats(model: Model) -> dict[str, Any]:
    """What a model has counted since it was loaded, and its queue now, where it has one in this process. Whoever asks twice
    sees what happened between: rates, batch sizes, and quantiles by `LATENCY_BOUNDS`."""
    counted = model.statistics.snapshot()
    latencies, seconds = model.statistics.latency_histogram()
    stages = counted["inference_stats"]
    figures: dict[str, Any] = {
        "answered": sum(latencies),
        "failed": stages["fail"]["count"],
        "cache_hits": stages["cache_hit"]["count"],
        "rows": counted["inference_count"],
        "executions": counted["execution_count"],
        "seconds": seconds,
        "queue_seconds": stages["queue"]["ns"] / 1e9,
        "latencies": latencies,
        "batches": {str(entry["batch_size"]): entry["compute_infer"]["count"] for entry in counted["batch_stats"]},
        "queue": None,
        "failures": model.statistics.failure_counts(),
    }
    if isinstance(model, QueuedModel) and isinstance(model.batcher, Batcher):
        arriving, queued, running = model.batcher.load()
        figures["queue"] = {"arriving": arriving, "queued": queued, "running": running}
        figures["instances"] = model.instances
    if isinstance(model, TensorModel):
        figures["agreement"] = model.agreement.to_json() if model.agreement is not None else None
        figures["stages"] = model.stages
        figures["away"] = model.away
    return figures


async def server_live_stats(repository: RepositoryProtocol, config: ServeConfig, load: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of every model that serves, summed over all front ends, and `load`, what the server takes of its machine.
    Raises OverloadedError while there is no engine."""
    models = repository.ready_models()
    figures = await repository.live_stats(models)
    return {
        "time": time.time(),
        "ready": repository.ready,
        "model_control_mode": config.control.model_control_mode,
        "front_ends": config.front_ends,
        "max_queue": config.max_queue,
        "response_cache_bytes": config.batching.response_cache_bytes,
        "shadow": config.observe.shadow,
        "server": load,
        "latency_bounds": LATENCY_BOUNDS,
        "models": [_about(model) | counted for model, counted in zip(models, figures, strict=True)],
    }


def _kind(model: Model) -> str:
    kinds = ((DecodeModel, "decode"), (ClassifyModel, "classify"), (EnsembleModel, "ensemble"))
    return next((kind for known, kind in kinds if isinstance(model, known)), "tensor")


def _about(model: Model) -> dict[str, Any]:
    target = model.target if isinstance(model, (ClassifyModel, DecodeModel)) else model
    heads: dict[str, str] = {}
    routes: tuple[str, ...] = ()
    account: dict[str, Any] = {}
    if isinstance(target, TensorModel):
        if model is target:
            account = {name: model.account[name] for name in _SHOWN if name in model.account}
        heads = {head.output: str(head) for head in target.task.heads}
        routes = image_routes(target.task) if target.preprocessor is not None else ()
    return {
        "name": model.name,
        "version": model.version,
        "kind": _kind(model),
        "target": target.name if isinstance(target, Model) and target is not model else None,
        "plan": account,
        "answers": routes,
        "outputs": heads,
        "largest_batch": model.batcher.table.largest if isinstance(model, QueuedModel) else None,
    }
