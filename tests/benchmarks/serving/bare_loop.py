"""Decoding and the model in a loop, with no server around them: what serving is measured against.

    python -m tests.benchmarks.serving.bare_loop MODELS/NAME TRIAL_SECONDS IMAGE...

Says {"ready": ...} once it is warm; then, for every line of standard input, which holds a number of seconds,
{"images_per_second": ...}. Batches are decoded on as many threads as a server has, each while the one before it runs. At the
start it tries every batch size of the plan up to `MOST_ROWS`, on one session and on two, and keeps what was fastest.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import BenchError
from headrace.runtime.artifact.artifact import Artifact, load_artifact
from headrace.serving.config import ServeConfig
from headrace.serving.images.decode_pool import decode_rows
from headrace.serving.models.loading import preprocessor_of

from .rounds import answer_rounds

MOST_ROWS = 16  # as many as the benchmark's connections can fill


class Loop:
    """Images in a circle, through decoding and sessions of one batch size."""

    def __init__(
        self, artifact: Artifact, images: Sequence[bytes], *, rows: int, sessions: int, pool: ThreadPoolExecutor
    ) -> None:
        if artifact.preprocessing is None:
            raise BenchError(f"{artifact.name} does not say how an image becomes its input")
        config, signature = ServeConfig(models=artifact.path), artifact.signature
        self._preprocessor = preprocessor_of(artifact.preprocessing, signature, config)
        self._shape = signature.inputs[0].row_shape
        self._images: Iterator[bytes] = itertools.cycle(images)
        self._take = threading.Lock()
        self._pool = pool
        self.rows = rows
        self.sessions = [artifact.open(rows) for _ in range(sessions)]

    def run(self, seconds: float) -> float:
        """Images per second."""
        begin = time.perf_counter()
        done = [0] * len(self.sessions)

        def work(number: int) -> None:
            coming = self._decoding()
            while not done[number] or time.perf_counter() - begin < seconds:
                batch, coming = [row.result() for row in coming], self._decoding()
                self.sessions[number].run([np.concatenate(batch)])
                done[number] += self.rows
            for row in coming:
                row.result()

        with ThreadPoolExecutor(len(self.sessions)) as threads:
            list(threads.map(work, range(len(self.sessions))))
        return sum(done) / (time.perf_counter() - begin)

    def close(self) -> None:
        for session in self.sessions:
            session.close()

    def _decoding(self) -> list[Any]:
        with self._take:
            images = list(itertools.islice(self._images, self.rows))
        return [self._pool.submit(decode_rows, self._preprocessor, [image], self._shape) for image in images]


def fastest(artifact: Artifact, images: Sequence[bytes], pool: ThreadPoolExecutor, trial_seconds: float) -> Loop:
    """The loop that gets the most images per second done, of those tried for so long."""
    plan = artifact.plan_here()
    planned = [1 << power for power in range(MOST_ROWS.bit_length())] if plan.portable else plan.buckets
    sizes = [rows for rows in planned if rows <= min(MOST_ROWS, artifact.max_batch_size)] or [1]
    best: tuple[float, Loop] | None = None
    for rows, sessions in itertools.product(sizes, (1, 2)):
        loop = Loop(artifact, images, rows=rows, sessions=sessions, pool=pool)
        loop.run(trial_seconds / 2)
        rate = loop.run(trial_seconds)
        if best is None or rate > best[0]:
            if best is not None:
                best[1].close()
            best = (rate, loop)
        else:
            loop.close()
    assert best is not None, "there is a size"
    return best[1]


def main(arguments: Sequence[str]) -> int:
    folder, trial_seconds, *files = arguments
    artifact = load_artifact(folder, trusted=True)
    images = [Path(file).read_bytes() for file in files]
    with ThreadPoolExecutor(ServeConfig(models=Path(folder)).images.decoders) as pool:
        loop = fastest(artifact, images, pool, float(trial_seconds))
        ready = {"rows": loop.rows, "sessions": len(loop.sessions)}
        answer_rounds(ready, lambda seconds: {"images_per_second": loop.run(seconds)})
        loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
