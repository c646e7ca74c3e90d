"""The load generator: processes of its own, N persistent connections, latencies from the intended start.

    python -m headrace.serving.bench.load.loadgen REQUEST.json RESULT.json

It shares the machine with the server it measures, so what matters most is that a request costs it little, and the same
for every server: requests are rendered to bytes once, answers are read after the clock has stopped. REQUEST.json holds a
`LoadRequest`; RESULT.json is what `LoadResult.to_json` writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ....errors import BenchError
from .load import LoadRequest, LoadResult

__all__ = ["LoadRequest", "LoadResult", "main", "run"]

# From the word to begin until the first request, so that every process has heard it.
_HEAD_START_SECONDS = 0.05


def run(request: LoadRequest) -> LoadResult:
    """Send what `request` asks for and return what happened, from this process or from several of its own.

    Raises BenchError when an image cannot be read, when a gRPC model cannot be asked, or when a process fails.
    """
    return _prepare(request)(time.monotonic()) if request.processes == 1 else _run_processes(request)


def _prepare(request: LoadRequest) -> Callable[[float], LoadResult]:
    if request.parts.scheme == "grpc":
        from . import grpc_load

        return grpc_load.prepare(request)
    from . import http_load

    return http_load.prepare(request)


def _run_processes(request: LoadRequest) -> LoadResult:
    """One process per share; all begin at the same moment, when the last of them is ready."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-load-")))
        targets, workers = [], []
        for number, share in enumerate(request.shares()):
            source, target = folder / f"{number}.request.json", folder / f"{number}.result.json"
            source.write_text(json.dumps(share.to_json()))
            command = [sys.executable, "-m", "headrace.serving.bench.load.loadgen", str(source), str(target), "--wait"]
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(_end, worker)
            targets.append(target)
            workers.append(worker)
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                raise BenchError(f"a process of the load generator ended with status {worker.wait()} before it began")
        start = time.monotonic() + _HEAD_START_SECONDS  # the clock is the same for all processes of a machine
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{start!r}\n")
            worker.stdin.close()
        for worker in workers:
            if worker.wait():
                raise BenchError(f"a process of the load generator ended with status {worker.returncode}")
        return LoadResult.merged([LoadResult.from_json(json.loads(target.read_text())) for target in targets])


def _end(worker: subprocess.Popen[str]) -> None:
    if worker.poll() is None:
        worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None and not pipe.closed:
            pipe.close()


def main(arguments: Sequence[str]) -> int:
    wait = arguments[2:] == ["--wait"]  # said by the process that started this one
    if len(arguments) != 2 and not wait:
        print("usage: python -m headrace.serving.bench.load.loadgen REQUEST.json RESULT.json", file=sys.stderr)  # noqa: T201
        return 2
    source, target = map(Path, arguments[:2])
    try:
        request = LoadRequest.from_json(json.loads(source.read_text()))
        if wait:
            send = _prepare(request)
            print("ready", flush=True)  # noqa: T201
            result = send(float(sys.stdin.readline()))
        else:
            result = run(request)
    except (BenchError, OSError, ValueError, TypeError) as error:
        print(f"loadgen: {error}", file=sys.stderr)  # noqa: T201
        return 1
    aside = target.with_name(target.name + ".tmp")
    aside.write_text(json.dumps(result.to_json()))
    os.replace(aside, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
