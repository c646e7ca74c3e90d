"""Without HTTP: threads that decode, batches that the plan runs, the best classes; beside one image after another in eager."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gpu.timing import waited

if TYPE_CHECKING:
    from gpu.bench import Bench, Subject

K = 5
LEAST_AGREEMENT = 0.85  # of the top-1 classes with eager's, below which something is wrong
_AHEAD = 3  # batches that are decoded before the one that runs


def in_process(
    bench: Bench, subject: Subject, preprocessing: Any, photos: Sequence[Path], textures: Sequence[Path]
) -> dict[str, Any]:
    """Images per second of both, the agreement of their answers, and decoding alone, which both need."""
    import torch

    from headrace.runtime.base.fingerprint import available_cores
    from headrace.runtime.graph.runner import Runner
    from headrace.runtime.images.preprocessing import Preprocessor
    from headrace.serving.images.fast_preprocessing import make_preprocessor

    steps = preprocessing.to_json()["steps"]
    plain, fast = Preprocessor(steps), make_preprocessor(steps, pixels=subject.signature.takes_pixels)
    encoded, compared = ([path.read_bytes() for path in paths] for paths in (photos, textures))
    runner = Runner(subject.signature, subject.plan, subject.directory)
    threads = available_cores()
    seconds = 0.5 if bench.quick else max(1.0, min(2.5, bench.here / 20))
    found: dict[str, Any] = {"threads": threads, "images": len(encoded), "seconds_each": seconds}

    @torch.no_grad()
    def naive(data: bytes) -> list[int]:
        """As a request is answered by a service as tutorials write it."""
        row = torch.from_numpy(plain(data)).unsqueeze(0).to(bench.device)
        return torch.topk(torch.softmax(subject.model(row), dim=1)[0], K).indices.tolist()

    def batched(rows: list[np.ndarray]) -> list[list[int]]:
        images = torch.from_numpy(np.stack(rows))
        images = images.pin_memory() if bench.device == "cuda" else images
        scores = runner.run([images.to(bench.device, non_blocking=True)])[0]
        return torch.topk(torch.softmax(scores, dim=1), K).indices.tolist()

    try:
        with ThreadPoolExecutor(threads) as pool:
            ours = [best[0] for rows in _decoded(pool, fast, compared, 8, len(compared)) for best in batched(rows)]
            theirs = [naive(data)[0] for data in compared]
            found["top1_agreement"] = sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)
            found["decoding"] = rate(lambda: len(list(pool.map(fast, encoded))), seconds, "cpu")
            found["naive"] = rate(lambda: len([naive(data) for data in encoded[:8]]), seconds, bench.device)
            found["batches"] = {}
            for batch in [one for one in bench.batches if one > 1][:4]:

                def some(batch: int = batch) -> int:
                    count = batch * (2 if bench.quick else 8)
                    return sum(len(batched(rows)) for rows in _decoded(pool, fast, encoded, batch, count))

                found["batches"][str(batch)] = rate(some, seconds, bench.device)
    finally:
        runner.close()
    best = max(found["batches"].items(), key=lambda item: item[1], default=None)
    found["status"] = "ran"
    if best is not None:
        found["best_batch"], found["images_per_second"] = int(best[0]), best[1]
        found["ratio"] = best[1] / found["naive"]
        bench.say(
            f"in process: {best[1]:.5g} images/s in batches of {best[0]}, {found['ratio']:.2f}x one by one in eager; "
            f"{threads} threads decode {found['decoding']:.5g}/s; top-1 agrees for {found['top1_agreement']:.1%}"
        )
    if found["top1_agreement"] < LEAST_AGREEMENT:
        bench.failed(f"served in process: top-1 agrees with eager's for {found['top1_agreement']:.1%} of the textures")
    return found


def _decoded(
    pool: ThreadPoolExecutor, decode: Any, images: Sequence[bytes], batch: int, count: int
) -> Iterator[list[np.ndarray]]:
    """`count` rows in batches, some of which are decoded ahead."""
    begun: list[list[Any]] = []
    for first in range(0, count, batch):
        begun.append([pool.submit(decode, images[n % len(images)]) for n in range(first, min(first + batch, count))])
        if len(begun) > _AHEAD:
            yield [one.result() for one in begun.pop(0)]
    for rows in begun:
        yield [one.result() for one in rows]


def rate(call: Any, seconds: float, device: str) -> float:
    """Images per second of calls that say how many they did, after one that warms up."""
    call()
    waited(device)
    begin, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - begin < seconds:
        done += call()
    waited(device)
    return done / (time.perf_counter() - begin)
