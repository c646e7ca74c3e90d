"""The engine's side of the front ends, under processes that only replay messages."""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import os
import pstats
import signal
import socket
import time
from typing import Any

import numpy as np
import uvloop

from headrace.runtime.base.anonymous_memory import create_memory, map_memory
from headrace.serving.processes.arena import Arena, BlockLayout
from headrace.serving.processes.engine_session import EngineSession, NumberedModel
from headrace.serving.processes.messages import Admit, Submit
from headrace.serving.processes.wire import Reader, encode

from .null_gpu import BEST, NullDevice, null_model

NUMBER = 1
_WARM_UP_SECONDS, _DEADLINE_SECONDS = 1.0, 3600.0


def measure_engine(
    dtype: str,
    *,
    size: int,
    row_seconds: float,
    in_flight: int,
    front_ends: int,
    instances: int,
    seconds: float,
    profile: bool = False,
) -> dict[str, Any]:
    """Processor time per request of this process, as long as `in_flight` requests are kept in it."""
    model, _ = null_model(dtype, size=16, device=NullDevice(row_seconds), instances=1)  # whose queue is of no use
    model.close()
    replaying = [_Replaying(dtype, size, in_flight // front_ends) for _ in range(front_ends)]
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measured(dtype, size, row_seconds, instances, seconds, replaying, profile))
    finally:
        for one in replaying:
            one.end()


async def _measured(
    dtype: str,
    size: int,
    row_seconds: float,
    instances: int,
    seconds: float,
    replaying: list[_Replaying],
    profile: bool,
) -> dict[str, Any]:
    model, sessions = null_model(dtype, size=size, device=NullDevice(row_seconds), instances=instances)
    batcher: Any = model.batcher
    models = {NUMBER: NumberedModel(model, batcher, BlockLayout(model.signature))}
    ended = asyncio.Event()
    opened = [
        EngineSession(
            one.connected, map_memory(one.memory), models, statistics=dict, control=lambda *_: None,
            on_change=lambda: None, on_end=lambda _: ended.set(),
        )
        for one in replaying
    ]  # fmt: skip
    await asyncio.sleep(_WARM_UP_SECONDS)
    watched = cProfile.Profile() if profile else None
    if watched is not None:
        watched.enable()
    before = _counted(batcher), time.process_time(), time.perf_counter()
    for session in sessions:
        session.batches.clear()
    await asyncio.sleep(seconds)
    after = _counted(batcher), time.process_time(), time.perf_counter()
    if watched is not None:
        watched.disable()
        pstats.Stats(watched).sort_stats("tottime").print_stats(25)
    failed = sum(batcher.statistics.failure_counts().values())
    batches = [rows for session in sessions for rows in session.batches]
    for one in opened:
        one.channel.close()
    await ended.wait()
    await asyncio.get_running_loop().run_in_executor(None, model.close)
    answered, cpu, wall = (later - sooner for sooner, later in zip(before, after, strict=True))
    return {
        "cpu_us": cpu / max(1, answered) * 1e6,
        "per_second": answered / wall,
        "batch": float(np.mean(batches)) if batches else 0.0,
        "failed": failed,
    }


def _counted(batcher: Any) -> int:
    return int(batcher.statistics.snapshot()["inference_stats"]["success"]["count"])


class _Replaying:
    """A process that keeps so many requests in the engine: for each answer it sends the same request again."""

    def __init__(self, dtype: str, size: int, in_flight: int) -> None:
        model, _ = null_model(dtype, size=size, device=NullDevice(0.0), instances=1)
        model.close()
        layout = BlockLayout(model.signature)
        total = in_flight * (layout.size(1) + 64)
        self.memory = create_memory(total)
        self.connected, there = socket.socketpair()
        # Before any thread or loop of this process: what is forked replays bytes, and ends with this process's end of the pair.
        self._process = os.fork()
        if self._process == 0:
            code = 1
            try:
                self.connected.close()
                _replay(there, map_memory(self.memory), layout, in_flight)
                code = 0
            finally:
                os._exit(code)
        there.close()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _replay(connected: socket.socket, memory: Any, layout: BlockLayout, in_flight: int) -> None:
    arena, prepared, now = Arena(len(memory)), {}, time.monotonic()
    for number in range(1, in_flight + 1):
        offset = arena.take(layout.size(1))
        assert offset is not None, "the memory is made for them"
        for rows in layout.inputs(memory, offset, 1):
            rows[...] = number % 100
        asked = Admit(number, NUMBER, 1, 0, BEST, offset, now, _DEADLINE_SECONDS)
        prepared[number] = encode(asked) + encode(Submit(number))
    reader = Reader()
    connected.sendall(b"".join(prepared.values()))
    while data := connected.recv(1 << 16):
        answers = [prepared[ticket] for message in reader.feed(data) for ticket in _tickets(message)]
        connected.sendall(b"".join(answers))


def _tickets(message: Any) -> list[int]:
    return [message.ticket]
