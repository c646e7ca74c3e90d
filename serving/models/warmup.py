"""From an artifact to sessions that are hot and whose speed is known."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import BackendError
from ...runtime.base.memory import give_back_memory
from ...specs import Signature, TensorSpec
from ..batching.latency_table import LatencyTable
from ..batching.ticket import Instance, Runner, close

_ROUNDS = 5
# Slow batches are run less often than that, when this is over; twice at least.
_SECONDS_PER_BUCKET = 0.6
# A second instance costs a second copy of the weights, and latency: batches that share the device take longer each. Two of
# ResNet-50 on two cores served 3 % more, at a p99 37 % higher. So it must serve this much more; single slices are noisy, so
# it must do so in most of them. On a GPU one's copies go on while the other computes; what that gains depends on the inputs'
# size, so it is measured there too.
_WORTH_A_SECOND = 1.15
_SLICE_SECONDS, _AGREEING = 0.25, 3
# Small models need no longer slices than this many batches take, but some scheduling of threads.
_SLICE_BATCHES, _SHORTEST_SLICE = 50, 0.05
# Models load side by side and are measured one at a time.
_measuring = threading.Lock()


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
    openers: Sequence[Callable[[], Instance]],
    signature: Signature,
    *,
    count: int | None,
    early: Callable[[Instance, LatencyTable], None] | None = None,
) -> tuple[list[Instance], LatencyTable]:
    """Open `count` instances (None: two where two measurably serve more than one) on each device, all hot, and profile a batch.

    Each opener makes instances of one device, the CPU or a GPU; the devices are alike, so that the first is measured. The
    first instances of all come before the second ones. How much slower batches are beside others, the table learns from them.

    `early` is called as soon as the first instance has run its smallest batch, with its sessions, which may be used meanwhile
    and need not be closed, and with a table by which larger batches gain nothing.

    Raises BackendError when a session fails or gives outputs that do not fit the signature or are not finite; nothing stays
    open then.
    """
    instances: list[Instance] = []

    def add(opener: Callable[[], Instance]) -> None:
        instances.append(opener())
        if early is not None and len(instances) == 1:
            instances[0] = _each_once(instances[0], _InTurns)
            _answer_early(instances[0], signature, early)
        heat(instances[-1], signature)

    try:
        for _ in range(count or 1):
            for opener in openers:
                add(opener)
        if count is None:
            add(openers[0])
        with _measuring:
            table = LatencyTable(_profile(instances[0], signature))
            one_is_enough = count is None and not _two_serve_more([instances[0], instances[-1]], signature, table)
        if one_is_enough:
            close(instances.pop())
        elif count is None:
            for opener in openers[1:]:
                add(opener)
        for instance in instances:
            shrink(instance, signature)
    except BaseException:
        for instance in instances:
            close(instance)
        raise
    give_back_memory()
    return instances, table


class _InTurns:
    """A session for two who do not know of each other: warm-up, which measures it, and a batcher that answers already."""

    def __init__(self, session: Runner) -> None:
        self._session = session
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self._lock:
            return self._session.run(inputs)

    def shrink(self, inputs: Sequence[np.ndarray]) -> None:
        with self._lock:
            _shrunk(self._session, inputs)

    def __getattr__(self, name: str) -> Any:
        """`twin`, where the session has it: that one has nobody to wait for. A split session's own calls take turns."""
        if name not in ("twin", "best", "ranks", "in_flight"):
            raise AttributeError(name)
        return getattr(self._session, name)

    def close(self) -> None:
        with self._lock:
            self._session.close()


class _Lent:
    """A session that somebody else closes."""

    def __init__(self, session: Runner) -> None:
        self.run = session.run

    def close(self) -> None:
        """Leave it open."""


def _answer_early(instance: Instance, signature: Signature, early: Callable[[Instance, LatencyTable], None]) -> None:
    smallest = min(instance)
    heat({smallest: instance[smallest]}, signature)
    begin = time.perf_counter()
    instance[smallest].run(sample_inputs(signature, smallest))
    seconds = (time.perf_counter() - begin) / smallest
    give_back_memory()
    early(lent(instance), LatencyTable({bucket: bucket * seconds for bucket in instance}))


def lent(instance: Instance) -> Instance:
    """The same for somebody who does not close it."""
    return _each_once(instance, _Lent)


def _each_once(instance: Instance, wrap: Callable[[Runner], Runner]) -> Instance:
    """The instance with every session wrapped; buckets that share one share it still."""
    wrapped = {id(session): wrap(session) for session in instance.values()}
    return {bucket: wrapped[id(session)] for bucket, session in instance.items()}


def shrink(instance: Instance, signature: Signature) -> None:
    """Have sessions give up the memory that they took for large batches; they take it again when such come."""
    for session in {id(session): session for session in instance.values()}.values():
        _shrunk(session, sample_inputs(signature, min(instance)))


def _shrunk(session: Runner, inputs: Sequence[np.ndarray]) -> None:
    if (shrink := getattr(session, "shrink", None)) is not None:
        shrink(inputs)


def heat(instance: Instance, signature: Signature) -> None:
    """Run a batch of each size. Raises BackendError for outputs that do not fit the signature or are not finite."""
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


def _profile(instance: Instance, signature: Signature) -> dict[int, float]:
    """The seconds that a hot batch of each size takes when nothing disturbs it: the least of some rounds through all sizes, so
    that a moment when the machine is slow spoils no size against the others."""
    inputs = {bucket: sample_inputs(signature, bucket) for bucket in instance}
    least = dict.fromkeys(instance, math.inf)
    end = time.perf_counter() + _SECONDS_PER_BUCKET * len(instance)
    for number in range(_ROUNDS):
        for bucket, session in instance.items():
            begin = time.perf_counter()
            session.run(inputs[bucket])
            least[bucket] = min(least[bucket], time.perf_counter() - begin)
        if number and time.perf_counter() > end:
            break
    return least


def _two_serve_more(instances: Sequence[Instance], signature: Signature, table: LatencyTable) -> bool:
    """Whether two instances of a device at once run enough more rows per second than one: what most of a few slices say."""
    bucket = table.first_batch(table.largest)
    seconds = table.seconds(bucket)
    inputs = sample_inputs(signature, bucket)
    with ThreadPoolExecutor(len(instances)) as pool:

        def rate(used: Sequence[Instance]) -> float:
            begin = time.perf_counter()
            end = begin + max(min(_SLICE_SECONDS, _SLICE_BATCHES * seconds), seconds, _SHORTEST_SLICE)
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
