"""Prometheus metrics under Triton's names, read from the models' statistics when they are scraped, not kept twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..batching.statistics import LATENCY_BOUNDS, SLACK_BOUNDS
from ..models.models import Model, QueuedModel, TensorModel
from ..models.repository import ModelRepository

_LABELS = ("model", "version")
_MICROSECONDS = 1000
# Which of LATENCY_BOUNDS are scraped: 1, 2.5, 5 and 10 of each decade, as every bound is a series of its own.
_SCRAPED = [index for index in range(len(LATENCY_BOUNDS)) if index % 10 in (0, 4, 7)]

# Triton's name: what it counts in a statistics snapshot, or in a stage of its "inference_stats"; and its help.
_COUNTERS = {
    "nv_inference_request_success": ("success.count", "Number of successful inference requests"),
    "nv_inference_count": ("inference_count", "Number of inferences performed (rows)"),
    "nv_inference_exec_count": ("execution_count", "Number of model executions performed (batches)"),
    "nv_inference_request_duration_us": ("success.ns", "Cumulative request duration in microseconds"),
    "nv_inference_queue_duration_us": ("queue.ns", "Cumulative queuing duration in microseconds"),
    "nv_inference_compute_input_duration_us":
        ("compute_input.ns", "Cumulative duration of collating inputs in microseconds"),
    "nv_inference_compute_infer_duration_us":
        ("compute_infer.ns", "Cumulative duration of running the model in microseconds"),
    "nv_cache_num_hits_per_model": ("cache_hit.count", "Number of requests answered from the response cache"),
    "nv_cache_num_misses_per_model": ("cache_miss.count", "Number of requests that the response cache could not answer"),
    "nv_cache_hit_duration_per_model":
        ("cache_hit.ns", "Cumulative duration of look-ups that found an answer in microseconds"),
    "nv_cache_miss_duration_per_model":
        ("cache_miss.ns", "Cumulative duration of look-ups that found none, and of keeping the answer, in microseconds"),
    "nv_inference_compute_output_duration_us":
        ("compute_output.ns", "Cumulative duration of splitting outputs in microseconds"),
}  # fmt: skip


def _counter(source: str, snapshot: dict[str, Any]) -> float:
    stage, _, kind = source.partition(".")
    if not kind:
        return float(snapshot[stage])
    value = snapshot["inference_stats"][stage][kind]
    return float(value / _MICROSECONDS if kind == "ns" else value)


class ModelCollector:
    """A prometheus_client collector over a repository."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository

    def collect(self) -> Iterable[Metric]:
        """All families, one sample per model and version."""
        models = self._repository.ready_models()
        snapshots = [((model.name, model.version), model.statistics.snapshot()) for model in models]
        for name, (source, text) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, snapshot in snapshots:
                # Triton's counters have no _total suffix, which add_metric would append.
                family.add_sample(name, dict(zip(_LABELS, labels, strict=True)), _counter(source, snapshot))
            yield family
        failed = CounterMetricFamily("nv_inference_request_failure", "Number of failed inference requests, by reason")
        for model, (labels, _) in zip(models, snapshots, strict=True):
            for reason, count in model.statistics.failure_counts().items():
                failed.add_sample(failed.name, dict(zip((*_LABELS, "reason"), (*labels, reason), strict=True)), count)
        yield failed
        depth = GaugeMetricFamily("nv_inference_pending_request_count", "Requests admitted and not running yet", labels=_LABELS)
        sizes = HistogramMetricFamily("headrace_batch_size", "Rows per executed batch", labels=_LABELS)
        slack = HistogramMetricFamily(
            "headrace_deadline_slack_seconds", "Time left when a request was answered", labels=_LABELS
        )
        latency = HistogramMetricFamily(
            "headrace_request_latency_seconds", "Time from a request's arrival to its answer", labels=_LABELS
        )
        instances = GaugeMetricFamily("headrace_instances", "Batches that are run side by side at most", labels=_LABELS)
        away = GaugeMetricFamily(
            "headrace_instances_away",
            "Instances of several processes that lack one, and compute nothing until it is started again",
            labels=_LABELS,
        )
        busy = CounterMetricFamily(
            "headrace_busy_seconds", "Time that instances spent on batches: collating, running and splitting", labels=_LABELS
        )
        tried = CounterMetricFamily(
            "headrace_improvements",
            "Sessions that were tried beside the first, by what became of them: kept, lost, memory or failed",
            labels=(*_LABELS, "tried", "outcome"),
        )
        stages = GaugeMetricFamily(
            "headrace_stage_share",
            "Shares of the last seconds in which a stage of a pipeline was busy, starved (nothing to compute) or blocked (no "
            "room behind it)",
            labels=(*_LABELS, "pipeline", "stage", "state"),
        )
        compared, agreed, skipped, taken_back, share, accepted = _agreement_families()
        for model, (labels, snapshot) in zip(models, snapshots, strict=True):
            if isinstance(model, TensorModel):
                taken_back.add_metric(labels, float(model.agreement is not None and model.agreement.taken_back))
            if isinstance(model, TensorModel) and (found := model.agreement) is not None:
                compared.add_metric(labels, found.compared)
                agreed.add_metric(labels, found.agreed)
                skipped.add_metric(labels, found.skipped)
                accepted.add_metric(labels, found.accepted)
                for bound, value in zip(("low", "high"), found.interval, strict=True):
                    share.add_metric((*labels, bound), value)
            if isinstance(model, TensorModel) and model.ranks:
                away.add_metric(labels, len(model.away))
            for where, shares in _stage_shares(model).items():
                for state, one in shares.items():
                    stages.add_metric((*labels, *where, state), one)
            latency.add_metric(labels, *_latency(model))
            if isinstance(model, QueuedModel):
                depth.add_metric(labels, model.batcher.depth)
                sizes.add_metric(labels, *_batch_sizes(model, snapshot))
                counts, total = model.statistics.slack_histogram()
                slack.add_metric(labels, _cumulative(SLACK_BOUNDS, counts), total)
                instances.add_metric(labels, model.instances * model.in_flight)
                busy.add_metric(labels, _busy_seconds(snapshot))
                for what, count in (model.improvement.outcomes.copy() if model.improvement else {}).items():
                    tried.add_metric((*labels, *what), count)
        yield from (depth, sizes, slack, latency, instances, away, busy, tried, stages)
        yield from (compared, agreed, skipped, taken_back, share, accepted)


def _agreement_families() -> tuple[CounterMetricFamily | GaugeMetricFamily, ...]:
    """Of answers that are compared with fp32's; empty without --shadow."""
    return (
        CounterMetricFamily(
            "headrace_shadow_compared", "Answers (of several labels: labels) compared with fp32", labels=_LABELS
        ),
        CounterMetricFamily("headrace_shadow_agreed", "Compared answers that agree with fp32", labels=_LABELS),
        CounterMetricFamily("headrace_shadow_skipped", "Answers left out, as others were being compared", labels=_LABELS),
        GaugeMetricFamily(
            "headrace_plan_taken_back", "1 where the plan agreed with fp32 too seldom, and serves no more", labels=_LABELS
        ),
        GaugeMetricFamily(
            "headrace_shadow_agreement",
            "The least and the most of all answers that agree, with 95 % confidence",
            labels=(*_LABELS, "bound"),
        ),
        GaugeMetricFamily("headrace_shadow_accepted", "The least share of agreement with which a plan stays", labels=_LABELS),
    )


def _batch_sizes(model: QueuedModel, snapshot: dict[str, Any]) -> tuple[list[tuple[str, float]], float]:
    counts = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in snapshot["batch_stats"]}
    bounds = [
        (str(float(bound)), float(sum(count for size, count in counts.items() if size <= bound)))
        for bound in model.batcher.table.buckets
    ]
    return [*bounds, ("+Inf", float(sum(counts.values())))], float(sum(size * count for size, count in counts.items()))


def _stage_shares(model: Model) -> dict[tuple[str, str], dict[str, float]]:
    """By the numbers of the pipeline (an instance) and of the stage; of those that have told theirs."""
    pipelines = model.stages if isinstance(model, TensorModel) else []
    return {
        (str(pipeline), str(stage)): shares
        for pipeline, stages in enumerate(pipelines)
        for stage, shares in enumerate(stages)
        if shares is not None
    }


def _busy_seconds(snapshot: dict[str, Any]) -> float:
    """Of all instances together. The durations per request would count a batch once for each request in it."""
    kinds = ("compute_input", "compute_infer", "compute_output")
    return sum(entry[kind]["ns"] for entry in snapshot["batch_stats"] for kind in kinds) / 1e9


def _latency(model: Model) -> tuple[list[tuple[str, float]], float]:
    counts, total = model.statistics.latency_histogram()
    every = _cumulative(LATENCY_BOUNDS, counts)
    return [every[index] for index in (*_SCRAPED, -1)], total


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus counts in each bucket what is at most its bound."""
    return list(zip([*map(str, bounds), "+Inf"], map(float, accumulate(counts)), strict=True))


def metrics_app(repository: ModelRepository) -> ASGIApp:
    """An ASGI application that answers GET /metrics: the models', and this process's memory, CPU time and open files. In a
    thread, one after the other: hundreds of models are seconds of work, for which no request waits."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(ModelCollector(repository))  # type: ignore[arg-type]
    turn = asyncio.Lock()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/metrics" or scope["method"] not in ("GET", "HEAD"):
            status = 405 if scope["path"] == "/metrics" else 404
            answer: Response = JSONResponse({"error": "this port answers GET /metrics only"}, status)
        else:
            async with turn:
                text = await asyncio.to_thread(generate_latest, registry)
            answer = Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
        await answer(scope, receive, send)

    return app
