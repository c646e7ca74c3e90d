"""One sandbox in which many requests to the worker are answered, each in a process of its own, torch loaded once for all."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from .confined_run import TIME_LIMIT, Completed, Limits
from .sandbox import Sandbox
from .worker_protocol import Forward, encode

SERVER = ("-P", "-m", "headrace.migrate.worker.server")
_WORKER = "headrace.migrate.worker"
PACKAGING = (
    "torch", "torch.export", "torch._dynamo", "torch.onnx", "torch.onnx._internal.exporter._core", "onnx", "onnxscript",
    *(f"{_WORKER}.{name}" for name in ("build", "inspection", "packaging", "recipe", "worker")),
)  # fmt: skip
"""What every request for a package imports."""
RUNNING = ("torch", "torchvision", f"{_WORKER}.live.model", f"{_WORKER}.worker")
"""What every run of a script imports that is to show its model."""
_GRACE = 60.0  # seconds: the server ends a worker in time by itself, unless the user's code stopped the server
_LONG = 10.0**8  # seconds


class WorkerPool:
    """Starts the server when it is first needed or `start` says so, and anew after one that broke a limit; a context manager
    that ends it. `preload` names modules that each request would import. `apart` gives each request a home of its own.

    `answer` is a `sandbox.Server`; the writable folders of its requests must lie below `folder`.
    """

    def __init__(self, sandbox: Sandbox, preload: Sequence[str] = PACKAGING, *, apart: bool = False) -> None:
        self._sandbox, self._preload, self._apart = sandbox, preload, apart
        self.folder = sandbox.writable_folder()
        self._pipe = sandbox.readable_folder() / "requests"
        os.mkfifo(self._pipe)
        self._end: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._over = True
        self._ended: Completed | None = None
        self._token = ""
        self._status = 0
        self._answered = threading.Event()
        self._on_line: Callable[[str], None] | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The same sandbox, with its requests to the worker answered here."""
        return replace(self._sandbox, writable_in=self.folder, server=self.answer)

    def answers_for(self, sandbox: Sandbox) -> bool:
        """Whether what runs here may read and do what that sandbox lets it."""
        return replace(sandbox, limits=self._sandbox.limits) == self._sandbox

    def answer(self, request: Path, response: Path, on_line: Callable[[str], None]) -> str | None:
        """Have a request answered: why there is no response, or None."""
        self.start()
        assert self._end is not None
        limit = self._sandbox.limits.timeout
        self._answered.clear()
        self._token, self._on_line = secrets.token_hex(8), on_line
        started = time.monotonic()
        line = encode(Forward(request=str(request), response=str(response), token=self._token, apart=self._apart))
        os.write(self._end, f"{line}\n".encode())
        answered = self._answered.wait(limit + _GRACE)
        if not answered:
            self.close()
        if os.path.lexists(response):
            return None
        if not answered or time.monotonic() - started >= limit:
            return f"stopped after {time.monotonic() - started:.0f} s, {TIME_LIMIT}"
        if self._ended is not None:
            return self._ended.why
        return f"its process ended with status {self._status}"

    def start(self) -> None:
        """Have the server load what requests need, if there is none."""
        if not self._over:
            return
        self.close()
        self._stop, self._ended, self._over = threading.Event(), None, False
        # Opened for reading too, so that neither end waits for the other.
        self._end = os.open(self._pipe, os.O_RDWR | os.O_CLOEXEC)
        limits: Limits = replace(self._sandbox.limits, timeout=_LONG, output_bytes=8 * self._sandbox.limits.output_bytes)

        def serve(stop: threading.Event) -> None:
            arguments = [*SERVER, str(self._pipe), str(self._sandbox.limits.timeout), *self._preload]
            try:
                self._ended = self._sandbox.run(arguments, self.folder, limits=limits, on_line=self._line, stop=stop)
            finally:
                self._over = True
                self._answered.set()

        self._thread = threading.Thread(target=serve, args=(self._stop,), name="headrace-worker-pool", daemon=True)
        self._thread.start()

    def _line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        token, _, status = rest.partition(" ")
        if word == "ANSWERED" and token == self._token:
            with contextlib.suppress(ValueError):
                self._status = int(status)
            self._answered.set()
        elif self._on_line is not None:
            self._on_line(line)

    def close(self) -> None:
        """End the server, if there is one; `start` makes another."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._end is not None:
            os.close(self._end)
            self._end = None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
