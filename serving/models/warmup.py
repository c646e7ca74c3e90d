"""From an artifact to sessions that are hot and whose speed is known."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ...errors import BackendError
from ...specs import Signature, TensorSpec
from ..batching.batcher import Instance, Runner, close
from ..batching.latency_table import LatencyTable

__all__ = ["sample_inputs", "warm_up"]

_RUNS = 5
# Slow batches are not run more often than this allows: the table needs the order of magnitude, plans were measured with care.
_SECONDS_PER_BUCKET = 0.6
# A second instance costs a second copy of the weights, and latency: batches that share the device take longer each. Two of
# ResNet-50 on two cores served 3 % more, at a p99 37 % higher. So it must serve this much more; single slices are noisy, so
# it must do so in most of them. On a GPU one's copies go on while the other computes; what that gains depends on the inputs'
# size, so it is measured there too.
_WORTH_A_SECOND = 1.15
_SLICE_SECONDS, _AGREEING = 0.25, 3


def sample_inputs(signature: Signature, rows: int) -> list[np.ndarray]:
    """Inputs of that many rows: small noise, since constant inputs let some kernels take shortcuts."""
    random = np.random.default_rng(0)

    def sample(spec: TensorSpec) -> np.ndarray:
        shape = (rows, *spec.row_shape)
        if spec.dtype.startswith("float"):
            return random.random(shape).astype(spec.dtype)
        if spec.dtype == "uint8":
            return random.integers(0, 256, shape, dtype=np.uint8)
        return np.ones(shape, dtype=spec.dtype)  # it may be an index, of which nobody says how far it may go

    return [sample(spec) for spec in signature.inputs]


def warm_up(
    openers: Sequence[Callable[[], Instance]], signature: Signature, *, count: int | None
) -> tuple[list[Instance], LatencyTable]:
    """Open `count` instances (None: two where two measurably serve more than one) on each device, all hot, and profile a batch.

    Each opener makes instances of one device, the CPU or a GPU; the devices are alike, so that the first is measured. The
    first instances of all come before the second ones. How much slower batches are beside others, the table learns from them.
    Raises BackendError when a session fails or gives outputs that do not fit the signature or are not finite; nothing stays
    open then.
    """
    instances: list[Instance] = []

    def add(opener: Callable[[], Instance]) -> None:
        instances.append(opener())
        _heat(instances[-1], signature)

    try:
        for _ in range(count or 1):
            for opener in openers:
                add(opener)
        table = LatencyTable(
            {
                bucket: statistics.median(_times(instances[0][bucket], sample_inputs(signature, bucket)))
                for bucket in instances[0]
            }
        )
        if count is None:
            add(openers[0])
            if not _two_serve_more([instances[0], instances[-1]], signature, table):
                close(instances.pop())
            else:
                for opener in openers[1:]:
                    add(opener)
    except BaseException:
        for instance in instances:
            close(instance)
        raise
    return instances, table


def _heat(instance: Instance, signature: Signature) -> None:
    for bucket, session in instance.items():
        try:
            outputs = session.run(sample_inputs(signature, bucket))
        except Exception as error:  # whatever a backend raises
            raise BackendError(f"warm-up with a batch of {bucket} failed: {error}") from error
        expected = [(bucket, *spec.row_shape) for spec in signature.outputs]
        if [output.shape for output in outputs] != expected:
            raise BackendError(f"outputs have shapes {[output.shape for output in outputs]}, the signature says {expected}")
        for spec, output in zip(signature.outputs, outputs, strict=True):
            if output.dtype.kind == "f" and not np.isfinite(output).all():
                raise BackendError(
                    f"output '{spec.name}' of a batch of noise is not finite; export the model again and compare"
                )


def _times(session: Runner, inputs: Sequence[np.ndarray]) -> list[float]:
    """Durations of some hot calls, in seconds."""
    times: list[float] = []
    end = time.perf_counter() + _SECONDS_PER_BUCKET
    while not times or (len(times) < _RUNS and time.perf_counter() < end):
        begin = time.perf_counter()
        session.run(inputs)
        times.append(time.perf_counter() - begin)
    return times


def _two_serve_more(instances: Sequence[Instance], signature: Signature, table: LatencyTable) -> bool:
    """Whether two instances of a device at once run enough more rows per second than one: what most of a few slices say."""
    bucket = table.first_batch(table.largest)
    inputs = sample_inputs(signature, bucket)
    with ThreadPoolExecutor(len(instances)) as pool:

        def rate(used: Sequence[Instance]) -> float:
            begin = time.perf_counter()
            end = begin + max(_SLICE_SECONDS, table.seconds(bucket))
            done = list(pool.map(lambda instance: _runs_until(instance[bucket], inputs, end), used))
            return sum(done) / (time.perf_counter() - begin)

        votes: Counter[bool] = Counter()
        while max(votes.values(), default=0) < _AGREEING:
            votes[rate(instances) >= _WORTH_A_SECOND * rate(instances[:1])] += 1
    return votes[True] > votes[False]


def _runs_until(session: Runner, inputs: Sequence[np.ndarray], end: float) -> int:
    runs = 0
    while time.perf_counter() < end:
        session.run(inputs)
        runs += 1
    return runs
