"""How long decoding and batches take on this machine, each alone and beside each other, with no server around them.

    python -m tests.benchmarks.scale.probe MODELS/NAME IMAGE...

Says {"ready": ...} once it is warm; then, for every line of standard input, which holds a number of seconds, about that long
later what it measured. Between them it sleeps, so that it takes nothing from a server that is measured meanwhile.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import BenchError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.base.fingerprint import available_cores
from headrace.serving.config import ServeConfig
from headrace.serving.images.decode_pool import decode_rows
from headrace.serving.models.loading import max_delay, open_instance, preprocessor_of
from headrace.serving.models.warmup import warm_up

from ..serving.rounds import answer_rounds

# The threads beside a batch that are measured; more get their shares of the cores.
_MOST_THREADS = 4
# How the seconds of a round are divided: batches and decoding in turn, and each condition of the two beside each other.
_ALTERNATING_SHARE = 0.6


class Probe:
    """The stages of one model, as a server would run them."""

    def __init__(self, folder: Path, images: Sequence[bytes]) -> None:
        artifact = load_artifact(folder, trusted=True)
        if artifact.preprocessing is None:
            raise BenchError(f"{artifact.name} does not say how an image becomes its input; its stages cannot be measured")
        config, plan = ServeConfig(models=folder.parent), artifact.plan_here()
        instances, table = warm_up(
            [partial(open_instance, artifact, plan, artifact.config.max_batch_size, None)], artifact.signature, count=1
        )
        self._sessions, self._table = instances[0], table
        self._preprocessor = preprocessor_of(artifact.preprocessing, artifact.signature, config)
        self._row = artifact.signature.inputs[0].row_shape
        self._images: Iterator[bytes] = itertools.cycle(images)
        self._take = threading.Lock()
        self._decoding = ThreadPoolExecutor(1)
        self.facts = {
            "buckets": list(table.buckets),
            "decoders": config.images.decoders,
            "max_delay_ms": 1e3 * max_delay(artifact.config, config),
            "max_queue": config.max_queue,
        }

    def measure(self, seconds: float) -> dict[str, Any]:
        """One round: samples in seconds, and speeds relative to running alone."""
        decoded, ran = self._alternating(_ALTERNATING_SHARE * seconds)
        threads = range(1, min(_MOST_THREADS, available_cores()) + 1)
        each = (1 - _ALTERNATING_SHARE) * seconds / (2 * len(threads) + 1)
        _, alone = self._beside(0, each, batches=True)
        together = [self._beside(count, each, batches=False)[0] for count in threads]
        beside = [self._beside(count, each, batches=True) for count in threads]
        return {
            "decode": decoded,
            "batch": {str(bucket): times for bucket, times in ran.items()},
            "together": [rate / together[0] for rate in together],
            "beside": [(rate / together[0], alone / batch) for rate, batch in beside],
        }

    def _alternating(self, seconds: float) -> tuple[list[float], dict[int, list[float]]]:
        """Images decoded one by one on a thread, then a batch of them: nothing beside, but caches as a server finds them."""
        decoded: list[float] = []
        ran: dict[int, list[float]] = {bucket: [] for bucket in self._sessions}
        rows: dict[int, np.ndarray] = {
            bucket: np.empty((bucket, *self._row), self._preprocessor.dtype) for bucket in self._sessions
        }
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not decoded:
            for bucket, session in self._sessions.items():
                decoded += self._decoding.submit(self._decode, rows[bucket]).result()
                begin = time.perf_counter()
                session.run([rows[bucket]])
                ran[bucket].append(time.perf_counter() - begin)
        return decoded, ran

    def _decode(self, rows: np.ndarray) -> list[float]:
        times = []
        for number in range(len(rows)):
            image = self._next()
            begin = time.perf_counter()
            decode_rows(self._preprocessor, [image], self._row, rows[number : number + 1])
            times.append(time.perf_counter() - begin)
        return times

    def _beside(self, threads: int, seconds: float, *, batches: bool) -> tuple[float, float]:
        """Images per second that each of so many threads decodes without a pause, and seconds per batch beside them."""
        bucket, over = self._table.efficient, threading.Event()
        counts, times = [0] * threads, []

        def work(number: int) -> None:
            row: np.ndarray = np.empty((1, *self._row), self._preprocessor.dtype)
            while not over.is_set():
                decode_rows(self._preprocessor, [self._next()], self._row, row)
                counts[number] += 1

        working = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        inputs: np.ndarray = np.zeros((bucket, *self._row), self._preprocessor.dtype)
        for thread in working:
            thread.start()
        begin = time.perf_counter()
        try:
            if batches:
                times = _durations(lambda: self._sessions[bucket].run([inputs]), seconds)
            else:
                time.sleep(seconds)
        finally:
            over.set()
            passed = time.perf_counter() - begin
            for thread in working:
                thread.join()
        return sum(counts) / max(1, threads) / passed, statistics.fmean(times) if times else 0.0

    def _next(self) -> bytes:
        with self._take:
            return next(self._images)


def _durations(run: Callable[[], object], seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


def main(arguments: Sequence[str]) -> int:
    folder, *files = arguments
    probe = Probe(Path(folder), [Path(file).read_bytes() for file in files])
    answer_rounds(probe.facts, probe.measure)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
