"""The processes of a benchmark: started one by one, awaited, put to sleep while another is measured, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import psutil

from ...errors import BenchError
from .load.messages import Encoding

LOG_TAIL_LINES = 25
STOP_SECONDS = 15.0
ALLOCATORS = ("tcmalloc", "jemalloc", "mimalloc")
# What changes how fast the same program runs, and so belongs beside its figures.
TELLING_VARIABLES = (
    *("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_CONF"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_"),
    *("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"),
)


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service to measure: how it is started and where it answers.

    `command` starts it on a free port of 127.0.0.1; "{ready}" in it stands for the file the service writes once it
    listens, JSON with at least the port under the name of the protocol. `path` is the route that takes an image, or for gRPC
    a slash and the model that does; `encoding` and `field` say how it takes one.
    """

    name: str
    command: tuple[str, ...]
    path: str
    protocol: str = "http"
    encoding: Encoding = "body"
    field: str = "image"


class Server:
    """One running service. Use it as a context manager: leaving it ends the process and all its children."""

    def __init__(self, service: Service, *, folder: Path, timeout_seconds: float) -> None:
        self.service = service
        self.log = folder / f"{service.name}.log"
        self.ready: dict[str, Any] = {}
        self.start_seconds = 0.0
        self.stop_seconds = STOP_SECONDS
        self._ready_file = folder / f"{service.name}.ready.json"
        self.command = [part.replace("{ready}", str(self._ready_file)) for part in service.command]
        self._timeout = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        protocol = self.service.protocol
        return f"{protocol}://127.0.0.1:{self.ready[protocol]}{self.service.path}"

    def __enter__(self) -> Server:
        self.log.write_bytes(b"")
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def wait_ready(self) -> None:
        """Returns when the service listens. Raises BenchError with the end of its log when it ends or takes too long."""
        begin = time.monotonic()
        while not self._read_ready():
            if self._running().poll() is not None:
                raise BenchError(
                    f"{self.service.name} ended with status {self._running().returncode} before it was ready.\n{self.tail()}"
                )
            if time.monotonic() - begin > self._timeout:
                raise BenchError(
                    f"{self.service.name} was not ready within {self._timeout:.0f} s; "
                    f"allow more with start_seconds.\n{self.tail()}"
                )
            time.sleep(0.05)
        self.start_seconds = time.monotonic() - begin

    def restart(self) -> None:
        """End the service and start it anew; its log goes on. Raises what `wait_ready` raises."""
        self.stop()
        self._start()
        self.wait_ready()

    def check_alive(self) -> None:
        """Raises BenchError with the end of its log when the service has ended."""
        if self._running().poll() is not None:
            raise BenchError(f"{self.service.name} ended with status {self._running().returncode} under load.\n{self.tail()}")

    def pause(self) -> None:
        """Stop the processes where they stand, so that they take no time from another that is being measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process, in order if it can, and whatever it has started."""
        process = self._running()
        children = [] if process.poll() is not None else self._family()
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.stop_seconds)
        finally:  # also when a second Ctrl-C comes while waiting
            self._signal(signal.SIGKILL)
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()

    def cpu_seconds(self) -> float:
        """Processor time used so far by the service and its children."""
        return sum(times.user + times.system for times in self._of_family(psutil.Process.cpu_times))

    def memory_bytes(self) -> int:
        """Resident memory of the service and its children; pages they share are counted in each."""
        return sum(memory.rss for memory in self._of_family(psutil.Process.memory_info))

    def pss_bytes(self) -> int | None:
        """Memory of the service and its children with shared pages counted once in all; None where the system cannot tell."""
        found = [getattr(memory, "pss", None) for memory in self._of_family(psutil.Process.memory_full_info)]
        return None if None in found else sum(filter(None, found))

    def facts(self) -> dict[str, Any]:
        """What the figures depend on: the command, the allocator, and the variables that change either."""
        self.check_alive()
        pid = self._running().pid
        maps = Path(f"/proc/{pid}/maps")
        mapped = maps.read_text() if maps.exists() else ""
        environment = psutil.Process(pid).environ()
        return {
            "command": self.command,
            "ready": self.ready,
            "start_seconds": round(self.start_seconds, 2),
            "allocator": next((name for name in ALLOCATORS if f"lib{name}" in mapped), "the C library's"),
            "environment": {name: environment[name] for name in TELLING_VARIABLES if name in environment},
        }

    def tail(self) -> str:
        """The end of the service's log, with the log's path."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"The end of {self.log}:", *(f"  {line}" for line in lines)])

    def _start(self) -> None:
        self._ready_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches only the benchmark, which then ends the whole group in order.
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _read_ready(self) -> bool:
        try:
            self.ready = json.loads(self._ready_file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):  # not yet, or a service that does not write it aside
            return False
        return True

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was not started"
        return self._process

    def _family(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self._running().pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _of_family(self, ask: Callable[[psutil.Process], Any]) -> Iterator[Any]:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield ask(process)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running().pid, number)


def run_to_end(
    command: Sequence[str], *, log: Path, timeout_seconds: float, tick: Callable[[], None], what: str = "the load generator"
) -> None:
    """Run a process to its end, calling `tick` a few times a second. Raises BenchError when it fails or takes too long.

    `what` it is in errors.
    """
    begin = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while process.poll() is None:
            tick()
            if time.monotonic() - begin > timeout_seconds:
                raise BenchError(f"{what} did not finish within {timeout_seconds:.0f} s; see {log}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BenchError(f"{what} ended with status {process.returncode}:\n{end}")


def machine_seconds() -> float:
    """Processor time that everything together has used so far, on the cores this process may use."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    times = [core for number, core in enumerate(psutil.cpu_times(percpu=True)) if number in allowed]
    return sum(sum(core) - core.idle - getattr(core, "iowait", 0.0) - getattr(core, "guest", 0.0) for core in times)


def own_seconds() -> float:
    """Processor time of this process, and of those of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@contextlib.contextmanager
def terminate_as_exit() -> Iterator[None]:
    """Within it, SIGTERM unwinds the stack like Ctrl-C does, so that started processes are ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
