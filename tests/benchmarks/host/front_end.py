"""A front end that reads and decodes JPEGs, before an engine whose model computes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import uvloop

from headrace.runtime.base.anonymous_memory import create_memory, map_memory
from headrace.serving.bench.images import write_synthetic_photos
from headrace.serving.bench.load.loadgen import LoadRequest, run
from headrace.serving.config import ServeConfig
from headrace.serving.observe.logs import log_output
from headrace.serving.processes import messages
from headrace.serving.processes.arena import BlockLayout
from headrace.serving.processes.control import ControlLink
from headrace.serving.processes.description import describe
from headrace.serving.processes.engine_session import EngineSession, NumberedModel
from headrace.serving.processes.frontend import FrontEnd
from headrace.serving.processes.ports import Ports

from .null_gpu import NAME, NullDevice, null_model

_NUMBER, _CONNECTIONS = 1, 32


def measure_front_end(dtype: str, *, size: int, row_seconds: float, seconds: float, folder: Path) -> dict[str, Any]:
    """Processor time per request of one front end with two decoding threads, as long as the load generator keeps it busy."""
    photos = write_synthetic_photos(folder / "photos", 32)
    config = ServeConfig.of(models=folder, http_port=0, grpc_port=None, metrics_port=None, frontends=1, decode_threads=2)
    ports = Ports(config)
    connected, there = socket.socketpair()
    memory = create_memory(config.processes.ring_bytes)
    control, controlled = ControlLink.pair()
    processes = []
    try:
        # Before any thread of this process: the engine, then the front end.
        processes.append(_forked(lambda: _engine(connected, memory, dtype, size, row_seconds)))
        front_end = _forked(lambda: _front_end(messages.StartFrontEnd(config, ports.numbers, False), controlled))
        processes.append(front_end)
        control.send(messages.Connect(), [there.fileno(), memory])
        while not isinstance((control.receive() or (messages.Serving(),))[0], messages.Serving):
            pass
        url = f"http://127.0.0.1:{ports.numbers['http']}/v1/classify/{NAME}"
        request = LoadRequest(
            url=url, images=tuple(map(str, photos)), connections=_CONNECTIONS, warm_up_seconds=0.0, kind="once"
        )
        asked, of_process = run(request), psutil.Process(front_end)
        assert not asked.errors, asked.error_examples
        before = _processor_seconds(of_process)
        result = run(
            LoadRequest(url=url, images=request.images, connections=_CONNECTIONS, warm_up_seconds=0.0, seconds=seconds)
        )
        spent = _processor_seconds(of_process) - before
        return {
            "cpu_us": spent / max(1, result.samples) * 1e6,
            "per_second": result.requests_per_second,
            "errors": result.errors,
        }
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        ports.close()


def _forked(work: Callable[[], None]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(1)
    return process


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _front_end(start: messages.StartFrontEnd, controlled: socket.socket) -> None:
    async def serve(log_settings: Any) -> None:
        await FrontEnd(start, ControlLink(controlled), log_settings).run()

    with log_output("text") as log_settings, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(log_settings))


def _engine(connected: socket.socket, memory: int, dtype: str, size: int, row_seconds: float) -> None:
    async def serve() -> None:
        model, _ = null_model(dtype, size=size, device=NullDevice(row_seconds), instances=1)
        batcher: Any = model.batcher
        numbered = NumberedModel(model, batcher, BlockLayout(model.signature))
        session = EngineSession(
            connected, map_memory(memory), {_NUMBER: numbered}, statistics=dict, control=lambda *_: None,
            on_change=lambda: None, on_end=lambda _: None,
        )  # fmt: skip
        described = (describe(model, lambda _: _NUMBER),)
        session.publish(messages.Catalog(serial=1, loaded=True, ready=True, index=(), numbers=(_NUMBER,), models=described))
        while True:
            await asyncio.sleep(1.0)
            session.channel.send(messages.Alive())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
