"""One version of a foreign model's folder to a model that serves; nothing is written into the folder."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ....errors import ArtifactError
from ....runtime.artifact.formats import format_named
from ....runtime.artifact.model_config import ModelConfig
from ....runtime.base.fingerprint import available_cores
from ....trust import REMEDY, is_trusted
from ...batching.batcher import Batcher
from ...batching.latency_table import LatencyTable
from ...batching.queue_rules import QueueRules
from ...batching.statistics import ModelStatistics
from ...batching.ticket import Joining
from ...config import ServeConfig
from ...protocol.messages import DATATYPES
from ..loading import max_delay, policy_of
from ..models import Model
from .config import check_supported, completed, declared_tensors, instance_count
from .ensemble import ensemble_of
from .files import backend_of, declared_config, graph_file, labels_of
from .model import ForeignModel, GraphSession

log = logging.getLogger("headrace.serving")

# The times of batches are measured on inputs of at most so many bytes, at up to so many rows, so often.
_PROBE_BYTES, _PROBE_ROWS, _PROBES = 64 << 20, 8, 3
# What a row is taken to take where that cannot be measured; the table learns from the batches that run.
_GUESS_SECONDS = 0.002


def load_foreign(
    folder: Path,
    config: ServeConfig,
    progress: Callable[[str], None],
    *,
    version: int,
    override: ModelConfig | None = None,
    before: Model | None = None,
) -> Model:
    """Open a version as its config or its graph has it. Raises ArtifactError or BackendError, leaving nothing open.

    `override` is used instead of the folder's config. `before` is the model whose place this one takes.
    """
    name, root = folder.name, config.models.resolve()
    declared = override or declared_config(folder)
    if config.front_ends:
        raise ArtifactError(f"'{name}' is served by a single process only; start the server with --frontends 0")
    check_supported(declared, name=name)
    backend = backend_of(declared, folder / str(version))
    counted = before.statistics if before is not None and before.version == str(version) else ModelStatistics()
    if backend == "ensemble":
        return ensemble_of(declared, name=name, version=str(version), labels=labels_of(root, folder, declared), counted=counted)
    known = format_named(backend)
    if why := known.missing():
        raise ArtifactError(why)
    if known.runs_code and not is_trusted(config.security.trust_repository):
        raise ArtifactError(f"'{name}' is a {backend} model, which would run code that it holds, with your rights: {REMEDY}")
    path = graph_file(root, folder / str(version), declared, known)
    progress(f"{name}: loading version {version} ({backend}, {path.relative_to(folder)})")
    parameters = {key: str(value.get("string_value", "")) for key, value in declared.message.get("parameters", {}).items()}
    graph = known.open(path, declared_tensors(declared), threads=config.processes.threads, parameters=parameters)
    try:
        full = completed(declared, graph, name=name, backend=known.backend)
        rules, labels = QueueRules.of(full), labels_of(root, folder, full)
        first = GraphSession(full, graph, graph.session)
        table = _table(first, full)
        asked = config.processes.instances or instance_count(full.message)
        count = min(asked, max(config.processes.instances or 0, available_cores()))
        sessions = [first, *(first.twin() for _ in range(count - 1))]
    except BaseException:
        graph.session.close()
        raise
    inputs, outputs = (tuple(replace(one, shape=one.dims) for one in side) for side in (full.inputs, full.outputs))
    if count < asked:
        progress(f"{name}: {count} of {asked} instances, one for each core")
    progress(f"{name}: version {version} is ready, {count} instance{'s' * (count > 1)}, batches of {table.largest}")
    return ForeignModel(
        name=name,
        version=str(version),
        config=replace(full, inputs=inputs, outputs=outputs),
        statistics=counted,
        batcher=Batcher(
            [dict.fromkeys(table.buckets, session) for session in sessions],
            table,
            name=name,
            policy=policy_of(rules, max_delay(full, config)),
            rules=rules,
            statistics=counted,
            max_queue=config.max_queue,
            joining=Joining.ALONE if full.queue_delay_us is None else Joining.EXACT,
        ),
        instances=count,
        instances_per_device=count,
        label_files=labels,
        texts=known.backend == "onnxruntime",
    )


def _table(session: GraphSession, config: ModelConfig) -> LatencyTable:
    """What batches take: measured where the config says how large a row is, and where the model takes noise."""
    largest = max(1, config.max_batch_size)
    buckets = [*(1 << power for power in range((largest - 1).bit_length())), largest]
    measured = {1: _GUESS_SECONDS}
    try:
        measured |= dict(_measured(session, config, min(largest, _PROBE_ROWS)))
    except Exception as error:  # noqa: BLE001 - it may need values that nobody knows here, and says so to whoever asks it
        log.debug("%s was not measured: %s", config.name, error)
    most = max(measured)
    each = max(0.0, measured[most] - measured[1]) / (most - 1) if most > 1 else measured[1]
    return LatencyTable({bucket: measured[1] + each * (bucket - 1) for bucket in buckets})


def _measured(session: GraphSession, config: ModelConfig, rows: int) -> Iterator[tuple[int, float]]:
    size = sum(math.prod(tensor.dims) * 8 for tensor in config.inputs)
    if any(-1 in tensor.dims or tensor.datatype == "BYTES" for tensor in config.inputs) or rows * size > _PROBE_BYTES:
        return
    random = np.random.default_rng(0)
    for number in sorted({1, rows}):
        inputs = [
            random.random((number, *tensor.dims)).astype(DATATYPES[tensor.datatype])
            if tensor.datatype.startswith("FP")
            else np.zeros((number, *tensor.dims), DATATYPES[tensor.datatype])
            for tensor in config.inputs
        ]
        times = []
        for _ in range(_PROBES):
            begin = time.perf_counter()
            session.run(inputs)
            times.append(time.perf_counter() - begin)
        yield number, max(statistics.median(times), 1e-6)
