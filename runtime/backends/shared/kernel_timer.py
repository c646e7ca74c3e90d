"""Milliseconds of small computations on a GPU, as they take in use: replayed as CUDA graphs, one after another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import torch

from .cuda_graphs import CudaRecorder

_REPEATED = 8  # in one recording, whose own start would hide what takes microseconds
_ROUNDS = 9
_SAMPLE_MS = 1.0


def time_on_cuda(functions: Sequence[Callable[[], Sequence[torch.Tensor]]]) -> list[float]:
    """The median of each on the current GPU, from rounds in which the order turns. Raises RuntimeError where one cannot be
    recorded. Values are read again and again, so caches are as warm as they can be, for all alike."""
    recorder = CudaRecorder()
    replays = [recorder(_repeated(function), ())[0] for function in functions]
    calls = [max(1, math.ceil(_SAMPLE_MS / max(_sample(replay, 2), 1e-3))) for replay in replays]
    samples: list[list[float]] = [[] for _ in replays]
    for turn in range(_ROUNDS):
        for offset in range(len(replays)):
            index = (offset + turn) % len(replays)
            samples[index].append(_sample(replays[index], calls[index]) / _REPEATED)
    return [statistics.median(found) for found in samples]


def _repeated(function: Callable[[], Sequence[torch.Tensor]]) -> Callable[..., Sequence[torch.Tensor]]:
    def run() -> Sequence[torch.Tensor]:
        for _ in range(_REPEATED - 1):
            function()
        return function()

    return run


def _sample(replay: Callable[[], None], calls: int) -> float:
    """Milliseconds of one replay among so many, after one that is not counted."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    replay()
    begin.record()
    for _ in range(calls):
        replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / calls
