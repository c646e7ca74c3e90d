"""Times of calls that are compared: in turns, many samples, the median and how far the samples lie apart."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ROUNDS = 7


def waited(device: str) -> None:
    """Until the device has done what it was given."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def in_turns(
    calls: Mapping[str, Callable[[], object]], device: str, milliseconds: float, *, rounds: int = ROUNDS
) -> dict[str, dict[str, Any]]:
    """Milliseconds per call of each: median and interquartile range of `rounds` samples that last about `milliseconds` each.

    Every round takes one sample of all calls, beginning with another of them, so that what else happens meets all.
    """

    def sample(call: Callable[[], object], count: int) -> float:
        waited(device)
        begin = time.perf_counter()
        for _ in range(count):
            call()
        waited(device)
        return 1000 * (time.perf_counter() - begin) / count

    counts = {}
    for what, call in calls.items():
        sample(call, 2)
        counts[what] = max(1, min(200, round(milliseconds / max(1e-6, sample(call, 2)))))
    samples: dict[str, list[float]] = {what: [] for what in calls}
    order = list(calls.items())
    for turn in range(rounds):
        begin = turn % len(order) if order else 0
        for what, call in order[begin:] + order[:begin]:
            samples[what].append(sample(call, counts[what]))
    found = {}
    for what, values in samples.items():
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        found[what] = {"ms": statistics.median(values), "spread_ms": high - low, "calls": counts[what] * rounds}
    return found


def replayed(
    call: Callable[..., object], arguments: Sequence[tuple[Any, ...]], device: str
) -> tuple[Callable[[], object], str]:
    """A function that makes the call once with each of the arguments, and how it does: on a GPU as one recorded CUDA graph, so
    that the time of a short kernel is the device's and not the interpreter's; "launches" where that cannot be recorded.

    Results are kept until all calls are made: memory that the next call writes anew would still lie in the cache.
    """

    def launches() -> list[object]:
        return [call(*given) for given in arguments]

    if device != "cuda":
        return launches, "launches"
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # compiles, and lets libraries choose
            call(*arguments[0])
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept = launches()
    except RuntimeError as error:
        torch.cuda.synchronize()
        return launches, f"launches: not recorded, {' '.join(str(error).split())[:120]}"

    def replay() -> list[object]:
        graph.replay()
        return kept

    return replay, "CUDA graph"
