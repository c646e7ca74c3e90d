"""From an artifact to sessions that are hot and whose speed is known."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..errors import BackendError
from ..specs import Signature
from .batcher import Runner
from .latency import LatencyTable

__all__ = ["profile", "sample_inputs"]

_RUNS = 5
# Slow batches are not run more often than this allows: the table needs the order of magnitude, plans were measured with care.
_SECONDS_PER_BUCKET = 0.6


def sample_inputs(signature: Signature, rows: int) -> list[np.ndarray]:
    """Inputs of that many rows: small noise, since constant inputs let some kernels take shortcuts."""
    random = np.random.default_rng(0)
    return [
        random.random((rows, *spec.row_shape)).astype(spec.dtype)
        if spec.dtype.startswith("float")
        else np.ones((rows, *spec.row_shape), dtype=spec.dtype)
        for spec in signature.inputs
    ]


def profile(instances: Sequence[Mapping[int, Runner]], signature: Signature) -> LatencyTable:
    """Run every bucket on all instances at once, as they will run under load, and keep the medians of the hot runs.

    Raises BackendError when a session fails or gives outputs that do not fit the signature.
    """
    with ThreadPoolExecutor(len(instances)) as pool:
        seconds = {}
        for bucket in sorted(instances[0]):
            runs = [pool.submit(_times, sessions[bucket], signature, bucket) for sessions in instances]
            try:
                seconds[bucket] = statistics.median([value for run in runs for value in run.result()])
            except Exception as error:  # whatever a backend raises
                raise BackendError(f"warm-up with a batch of {bucket} failed: {error}") from error
    return LatencyTable(seconds)


def _times(session: Runner, signature: Signature, bucket: int) -> list[float]:
    """Durations of some hot calls, in seconds."""
    inputs = sample_inputs(signature, bucket)
    _check(session.run(inputs), signature, bucket)
    times: list[float] = []
    end = time.perf_counter() + _SECONDS_PER_BUCKET
    while not times or (len(times) < _RUNS and time.perf_counter() < end):
        begin = time.perf_counter()
        session.run(inputs)
        times.append(time.perf_counter() - begin)
    return times


def _check(outputs: Sequence[np.ndarray], signature: Signature, bucket: int) -> None:
    expected = [(bucket, *spec.row_shape) for spec in signature.outputs]
    if [output.shape for output in outputs] != expected:
        raise BackendError(f"outputs have shapes {[output.shape for output in outputs]}, the signature says {expected}")
